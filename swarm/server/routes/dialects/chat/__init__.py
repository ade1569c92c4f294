"""OpenAI's Chat Completions dialect, with vLLM's extra parameters."""
