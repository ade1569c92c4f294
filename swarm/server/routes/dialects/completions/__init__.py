"""OpenAI's (legacy) Completions dialect: a bare prompt goes in, text comes out."""
