"""What must survive the death of the process: one SQLite file in the state folder."""
