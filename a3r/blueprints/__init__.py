"""An experiment as data: the blueprint model, its Markdown face and its two hashes."""
