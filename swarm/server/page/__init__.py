"""A web page about one episode: what each token is, who wrote it, and what became of it. Knows no HTTP and no service."""
