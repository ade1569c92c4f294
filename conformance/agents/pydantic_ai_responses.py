"""pydantic-ai on the Responses dialect."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from task import MODEL, PROMPT, add, finish, multiply

agent = Agent(OpenAIResponsesModel(MODEL), tools=[add, multiply])
finish(agent.run_sync(PROMPT).output)
