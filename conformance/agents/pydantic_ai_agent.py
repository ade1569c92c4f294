"""pydantic-ai on the chat dialect."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from task import MODEL, PROMPT, add, finish, multiply

agent = Agent(OpenAIChatModel(MODEL), tools=[add, multiply])
finish(agent.run_sync(PROMPT).output)
