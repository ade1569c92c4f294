"""pydantic-ai on the chat dialect, streamed."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from task import MODEL, PROMPT, add, finish, multiply


async def main() -> None:
    """Run the agent and read its events to the end."""
    agent = Agent(OpenAIChatModel(MODEL), tools=[add, multiply])
    async with agent.iter(PROMPT) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for _ in events:
                        pass
    finish(run.result.output)


asyncio.run(main())
