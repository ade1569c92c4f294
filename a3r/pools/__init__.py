"""Pools of workers on clusters: when to ask an engine for workers, with which command, and what to make of its answers.

The engines themselves are in ``a3r.adapters``, behind ``a3r.core.pools.PoolEngine``.
"""
