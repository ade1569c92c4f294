"""Small real classes that stand in for the outside world in tests, and for anyone who builds on a3r."""
