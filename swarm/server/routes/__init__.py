"""HTTP: the OpenAI dialect under ``/v1`` and the control routes under ``/swarm``. Decides nothing; the service does."""
