"""A3R: from a research goal to a finished, checkable study of agentic reinforcement learning."""
