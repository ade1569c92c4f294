"""Other hosts over SSH: set up, looked at, kept at work by a link, left again. What runs on them is an ordinary worker."""
