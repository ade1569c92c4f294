"""Built-in tasks and the tiny models that they are played with."""
