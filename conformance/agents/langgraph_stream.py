"""LangGraph's prebuilt agent, its model streamed token by token."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from task import MODEL, PROMPT, add, finish, multiply

agent = create_agent(ChatOpenAI(model=MODEL, streaming=True), tools=[add, multiply])
said = ""
for chunk, _ in agent.stream({"messages": [("user", PROMPT)]}, stream_mode="messages"):
    said = said + chunk.text if chunk.type == "AIMessageChunk" else ""
finish(said)
