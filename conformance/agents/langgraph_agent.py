"""LangGraph's prebuilt agent on LangChain's OpenAI chat model."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from task import MODEL, PROMPT, add, finish, multiply

agent = create_agent(ChatOpenAI(model=MODEL), tools=[add, multiply])
state = agent.invoke({"messages": [("user", PROMPT)]})
finish(state["messages"][-1].text)
