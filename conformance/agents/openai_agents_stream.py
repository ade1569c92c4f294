"""OpenAI's Agents SDK on the Responses dialect, streamed."""

import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled
from task import MODEL, PROMPT, add, finish, multiply


async def main() -> None:
    """Run the agent and read its events to the end."""
    agent = Agent(name="c", model=MODEL, tools=[function_tool(add), function_tool(multiply)])
    run = Runner.run_streamed(agent, PROMPT)
    async for _ in run.stream_events():
        pass
    finish(run.final_output)


set_tracing_disabled(True)
asyncio.run(main())
