"""pydantic-ai on the Messages dialect."""

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from task import ANTHROPIC_URL, API_KEY, PROMPT, add, finish, multiply

provider = AnthropicProvider(base_url=ANTHROPIC_URL, api_key=API_KEY)
agent = Agent(AnthropicModel("claude-sonnet-4-5", provider=provider), tools=[add, multiply])
finish(agent.run_sync(PROMPT).output)
