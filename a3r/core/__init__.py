"""The vocabulary of a3r: types, errors, settings, wire messages and ports (Protocols). Imports nothing above it."""
