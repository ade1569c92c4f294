"""The sections of a report, one noun a file: each takes a study and returns its blocks. ``contents`` says their order."""
