"""Walls around code that nobody has read: which files it sees, whom it may call, how much of the host it may take.

Knows nothing of attempts, hubs or campaigns; ``enclose`` turns a command into one that runs behind the walls.
"""
