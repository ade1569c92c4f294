"""What the stand-in hands in when it is asked to write the client of ``campaigns/in-prose``: files, never imported here."""
