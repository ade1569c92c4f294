"""Goals in prose: a language model reads them, code checks each thing that it read against the goal's own words."""
