"""Proof by breaking: real processes, planned faults, and an audit of what was promised against what was kept."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""Of every process of a proof."""
