"""The optimizer's step over captured rows: pure losses, packing, update (torch; imported only in the engine's child)."""
