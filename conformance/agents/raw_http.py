"""No framework: the chat dialect with nothing but the standard library."""

import json
import urllib.request

from task import API_KEY, BASE_URL, MODEL, PROMPT, SCHEMA, TOOLS, finish

TOOL_LIST = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS
]


def ask(messages: list) -> dict:
    """Post one chat request; return the assistant message."""
    body = json.dumps({"model": MODEL, "messages": messages, "tools": TOOL_LIST}).encode()
    headers = {"authorization": f"Bearer {API_KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{BASE_URL}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]


messages: list = [{"role": "user", "content": PROMPT}]
while True:
    message = ask(messages)
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        function = call["function"]
        result = TOOLS[function["name"]](**json.loads(function["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
finish(messages[-1]["content"])
