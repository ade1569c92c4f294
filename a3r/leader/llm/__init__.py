"""How the leader talks to a language model: budget, journal, structured replies, tools. Knows no provider."""
