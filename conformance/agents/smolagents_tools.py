"""smolagents' agent that calls tools through the API."""

from smolagents import OpenAIServerModel, ToolCallingAgent, tool
from task import API_KEY, BASE_URL, MODEL, PROMPT, add, finish, multiply

model = OpenAIServerModel(MODEL, api_base=BASE_URL, api_key=API_KEY)
agent = ToolCallingAgent(tools=[tool(add), tool(multiply)], model=model, max_steps=6)
finish(agent.run(PROMPT))
