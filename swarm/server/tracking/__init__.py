"""From chat messages to token ids and back: rendering, tool calls, the tree of an episode's calls, rows to train on."""
