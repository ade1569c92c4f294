"""A language model that follows a script: in the process (``ScriptedModel``) or as a real OpenAI-compatible HTTP server."""
