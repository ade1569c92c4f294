"""The trust figures: what the rules of docs/concepts/trust.md are worth, measured. ``python -m a3r.testing.trust`` or ``make trust``."""
