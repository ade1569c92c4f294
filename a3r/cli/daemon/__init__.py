"""The daemon's process (``python -m a3r.cli.daemon``), how it is started on demand, and the noun ``a3r daemon``."""
