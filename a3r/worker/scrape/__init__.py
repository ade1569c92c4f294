"""Metrics of foreign trainers, read from their logs: verl, TRL, Lightning. Swarm servers are asked over HTTP, never scraped."""
