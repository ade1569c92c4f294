"""LangGraph's prebuilt agent on the Responses dialect."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from task import MODEL, PROMPT, add, finish, multiply

agent = create_agent(ChatOpenAI(model=MODEL, use_responses_api=True), tools=[add, multiply])
state = agent.invoke({"messages": [("user", PROMPT)]})
finish(state["messages"][-1].text)
