"""What the scripted model says: a fixed answer to each stage of the task, told from what the prompt already holds.

It reads the prompt's text, never the number of the call: a framework that loses a tool's result gets the same answer again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from swarm.server.model_files import resolve_model
from swarm.server.ports import GenerateRequest

TOKENIZER_OF = "builtin:tiny-calc-qwen"
TEMPLATE = """\
{% for message in messages %}<|{{ message.role }}|>{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>
{% endif %}{{ message.content }}{% if loop.first and tools %}{{ tools | tojson }}{% endif %}\
{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|end|>\
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
"""A thinking model's template that shows all that a call may hold, tools with their descriptions included."""
SAYS_FIRST, SAYS_LAST = "I add first: é ✓.", "The answer is 248099698."
SUMS, PRODUCT = ("4234", "58597"), "248099698"

Scenario = Callable[[str], str]
"""Text of the prompt -> text of the answer."""


def call(name: str, **arguments: object) -> str:
    """Return a tool call as the model writes it (hermes)."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{body}</tool_call>"


def plain_calls(prompt: str) -> str:
    """Two parallel calls, then one more, then the answer."""
    return _calculate(prompt, "", SAYS_LAST)


def spoken_calls(prompt: str) -> str:
    """The same with text beside the parallel calls."""
    return _calculate(prompt, SAYS_FIRST, SAYS_LAST)


def final_tool(prompt: str) -> str:
    """For agents that end by calling ``final_answer``."""
    return _calculate(prompt, "", call("final_answer", answer=PRODUCT))


def _calculate(prompt: str, first: str, last: str) -> str:
    if PRODUCT in prompt:
        return last
    if all(number in prompt for number in SUMS):
        return call("multiply", a=4234, b=58597)
    return first + call("add", a=1701, b=2533) + call("add", a=31415, b=27182)


NAMED = {
    "text": "The sum is é 85 ✓.",
    "calls": "Adding." + call("add", a=1, b=2) + call("add", a=3, b=4),
    "json": '{"total": 85}',
    "thinking": "<think>Hm, é.</think>Done.",
}
"""Answers by name."""


def said_by_name(prompt: str) -> str:
    """The answer that the prompt's last ``@@name@@`` asks for."""
    names = re.findall(r"@@(\w+)@@", prompt)
    return NAMED[names[-1]] if names else NAMED["text"]


class ScriptedModel:
    """A toy engine's script that follows one scenario at a time."""

    def __init__(self, folder: Path) -> None:
        """Write the model's folder: a shipped model's tokenizer under a template of our own. Weights are not needed."""
        self.folder, shipped = folder, resolve_model(TOKENIZER_OF)
        folder.mkdir(parents=True)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(shipped / name, folder)
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.scenario: Scenario = plain_calls

    def __call__(self, request: GenerateRequest) -> str:
        """Answer one prompt."""
        return self.scenario(self._tokenizer.decode(request.prompt_ids, skip_special_tokens=False))
