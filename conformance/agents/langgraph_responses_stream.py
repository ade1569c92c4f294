"""LangGraph's prebuilt agent on the Responses dialect, streamed."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from task import MODEL, PROMPT, add, finish, multiply

agent = create_agent(
    ChatOpenAI(model=MODEL, streaming=True, use_responses_api=True), tools=[add, multiply]
)
said = ""
for chunk, _ in agent.stream({"messages": [("user", PROMPT)]}, stream_mode="messages"):
    said = said + chunk.text if chunk.type == "AIMessageChunk" else ""
finish(said)
