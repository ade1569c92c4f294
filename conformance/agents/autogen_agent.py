"""AutoGen's assistant agent, one tool round after another."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from task import MODEL, PROMPT, add, finish, multiply


async def main() -> None:
    """Run the agent on the task."""
    model = OpenAIChatCompletionClient(model=MODEL)
    agent = AssistantAgent(
        "calculator", model, tools=[add, multiply], max_tool_iterations=5, system_message=None
    )
    result = await agent.run(task=PROMPT)
    finish(result.messages[-1].content)


asyncio.run(main())
