"""The dialects that agents speak: each one reads a body into a ``ChatCall`` and writes an ``Answer`` back; none knows another."""
