"""The vocabulary of the swarm: everything a client and a server say to each other (pydantic only)."""
