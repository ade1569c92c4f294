"""Where a campaign's clients come from: a template, a folder of the user's, or a language model; how they are tried and repaired."""
