"""No framework: a loop around the anthropic SDK, which finds the server by ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY."""

from anthropic import Anthropic
from task import PROMPT, SCHEMA, TOOLS, finish

client = Anthropic()
messages: list = [{"role": "user", "content": PROMPT}]
while True:
    message = client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=999,
        messages=messages,
        tools=[{"name": name, "input_schema": SCHEMA} for name in TOOLS],
    )
    messages.append({"role": "assistant", "content": message.content})
    if message.stop_reason != "tool_use":
        break
    results = [
        {
            "type": "tool_result",
            "tool_use_id": block.id,
            "content": str(TOOLS[block.name](**block.input)),
        }
        for block in message.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
finish(message.content[0].text)
