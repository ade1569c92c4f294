"""OpenAI's Agents SDK as it comes: the Responses dialect."""

from agents import Agent, Runner, function_tool, set_tracing_disabled
from task import MODEL, PROMPT, add, finish, multiply

set_tracing_disabled(True)
agent = Agent(
    name="calculator",
    instructions="Use the tools.",
    model=MODEL,
    tools=[function_tool(add), function_tool(multiply)],
)
finish(Runner.run_sync(agent, PROMPT).final_output)
