"""The worker of one host: claims attempts from the hub, runs their processes, watches them, sends the evidence up.

Meets the leader only through ``a3r.core.ports.Hub``; never calls an LLM; reaches a swarm server only over HTTP.
"""
