"""What the dialects share: reading JSON fields, sampling values, tools, headers. No dialect's own words."""
