"""The episode guard: broken answers of train episodes are found when the episode finishes, and masked, zeroed or dropped by config."""
