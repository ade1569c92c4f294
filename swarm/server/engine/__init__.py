"""The embedded engine: ``host`` runs in the front process (no torch), everything else in the child that it spawns."""
