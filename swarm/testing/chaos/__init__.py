"""Proof by breaking: real processes, planned faults, and an audit of what was promised against what was kept."""
