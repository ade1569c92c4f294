"""A server's step metrics in a logger of choice, through that logger's own library (imported only when it is chosen)."""
