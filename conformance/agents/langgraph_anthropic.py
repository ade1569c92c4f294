"""LangGraph's prebuilt agent on LangChain's Anthropic chat model."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from task import ANTHROPIC_URL, API_KEY, PROMPT, add, finish, multiply

model = ChatAnthropic(model="claude-sonnet-4-5", base_url=ANTHROPIC_URL, api_key=API_KEY)
state = create_agent(model, tools=[add, multiply]).invoke({"messages": [("user", PROMPT)]})
finish(state["messages"][-1].text)
