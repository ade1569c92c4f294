"""LangGraph's prebuilt agent on LangChain's Anthropic chat model, streamed."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from task import ANTHROPIC_URL, API_KEY, PROMPT, add, finish, multiply

model = ChatAnthropic(
    model="claude-sonnet-4-5", base_url=ANTHROPIC_URL, api_key=API_KEY, streaming=True
)
said = ""
for chunk, _ in create_agent(model, tools=[add, multiply]).stream(
    {"messages": [("user", PROMPT)]}, stream_mode="messages"
):
    said = said + chunk.text if chunk.type == "AIMessageChunk" else ""
finish(said)
