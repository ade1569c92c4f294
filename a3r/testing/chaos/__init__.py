"""Proof by breaking, for campaigns: real daemons, workers, tmux and processes, planned faults, and an audit of what is left."""
