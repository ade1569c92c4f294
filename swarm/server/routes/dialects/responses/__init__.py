"""OpenAI's Responses dialect: ``/v1/responses`` and what was answered there before, by id."""
