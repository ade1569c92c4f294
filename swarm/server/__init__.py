"""The swarm server: HTTP front, service, tracking, journal, and engines in child processes."""
