"""A finished campaign as records, claims computed from them, a rendered report, and its verification."""
