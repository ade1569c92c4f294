"""The training core: a model behind an OpenAI-compatible endpoint that learns from the episodes run against it.

``swarm`` stands alone. It knows nothing of ``a3r``; ``swarm.client`` and ``swarm.server`` meet only in ``swarm.protocol``.
"""
