"""What the server decides: episodes, groups, steps, recovery. Knows no HTTP and no torch; one event loop, no locks."""
