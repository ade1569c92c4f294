"""The anthropic SDK in strict mode: every response and every event must validate against its own types."""

import anthropic
from anthropic import Anthropic
from probe import check, equal, raises, run_checks
from task import ANTHROPIC_URL, API_KEY, SCHEMA

MODEL = "claude-sonnet-4-5"
strict = Anthropic(base_url=ANTHROPIC_URL, api_key=API_KEY, _strict_response_validation=True)
TOOLS: list = [{"name": "add", "description": "Add.", "input_schema": SCHEMA}]


def say(key: str) -> list:
    """Messages that make the scripted model answer with its text of that name."""
    return [{"role": "user", "content": f"@@{key}@@"}]


def create(key: str, **more):
    """One call."""
    return strict.messages.create(model=MODEL, max_tokens=999, messages=say(key), **more)


@check
def text() -> None:
    """POST /v1/messages: text, system blocks, usage"""
    system: list = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    message = create(
        "text", system=system, extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 5}
    )
    equal((message.content[0].text, message.stop_reason), ("The sum is é 85 ✓.", "end_turn"))
    equal(message.usage.output_tokens > 3, True)


@check
def tools() -> None:
    """POST /v1/messages: parallel tool use, and the results sent back"""
    message = create("calls", tools=TOOLS)
    equal([block.type for block in message.content], ["text", "tool_use", "tool_use"])
    equal(message.stop_reason, "tool_use")
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "3"}
        for block in message.content
        if block.type == "tool_use"
    ]
    turns: list = [
        *say("calls"),
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "@@text@@"}]},
    ]
    again = strict.messages.create(model=MODEL, max_tokens=99, messages=turns, tools=TOOLS)
    equal(again.stop_reason, "end_turn")


@check
def ends() -> None:
    """POST /v1/messages: stop_sequences and max_tokens"""
    stopped = create("text", stop_sequences=["85"])
    equal((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "85"))
    cut = strict.messages.create(model=MODEL, max_tokens=2, messages=say("text"))
    equal((cut.stop_reason, cut.usage.output_tokens), ("max_tokens", 2))


@check
def thinking() -> None:
    """POST /v1/messages: thinking blocks with a signature, accepted when they come back"""
    message = create("thinking", thinking={"type": "enabled", "budget_tokens": 1024})
    equal([block.type for block in message.content], ["thinking", "text"])
    turns: list = [
        *say("thinking"),
        {"role": "assistant", "content": message.content},
        *say("text"),
    ]
    again = strict.messages.create(model=MODEL, max_tokens=99, messages=turns)
    equal(again.stop_reason, "end_turn")


@check
def stream() -> None:
    """POST /v1/messages, streamed: text, tool use and thinking; the same message as .create()"""
    for key in ("text", "calls", "thinking"):
        whole = create(key, tools=TOOLS)
        with strict.messages.stream(
            model=MODEL, max_tokens=999, messages=say(key), tools=TOOLS
        ) as events:
            kinds = [event.type for event in events]
            last = events.get_final_message()
        equal((kinds[0], kinds[-1]), ("message_start", "message_stop"))
        equal([_plain(block) for block in last.content], [_plain(b) for b in whole.content])
        equal(
            (last.stop_reason, last.usage.output_tokens),
            (whole.stop_reason, whole.usage.output_tokens),
        )


def _plain(block) -> dict:
    return block.model_dump(include={"type", "text", "name", "input", "thinking", "signature"})


@check
def count_tokens() -> None:
    """POST /v1/messages/count_tokens: what the same call is charged"""
    counted = strict.messages.count_tokens(model=MODEL, messages=say("text"), tools=TOOLS)
    equal(counted.input_tokens, create("text", tools=TOOLS).usage.input_tokens)


@check
def models() -> None:
    """GET /v1/models and /v1/models/{id}"""
    listed = strict.models.list().data
    equal(strict.models.retrieve(listed[0].id).id, listed[0].id)


@check
def beta() -> None:
    """Beta headers and beta routes are tolerated"""
    message = strict.beta.messages.create(
        model=MODEL, max_tokens=99, messages=say("text"), betas=["interleaved-thinking-2025-05-14"]
    )
    equal(message.stop_reason, "end_turn")


@check
def errors() -> None:
    """Errors: 400, 401 and 404 in Anthropic's envelope"""
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    image: list = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    bad = raises(
        anthropic.BadRequestError,
        lambda: strict.messages.create(model=MODEL, max_tokens=9, messages=image),
    )
    equal(bad.body["error"]["type"], "invalid_request_error")
    stranger = strict.with_options(api_key="sk-nobody")
    wrong = raises(
        anthropic.AuthenticationError,
        lambda: stranger.messages.create(model=MODEL, max_tokens=9, messages=say("text")),
    )
    equal(wrong.body["error"]["type"], "authentication_error")
    gone = raises(anthropic.NotFoundError, lambda: strict.models.retrieve("no-such-model"))
    equal(gone.body["error"]["type"], "not_found_error")


run_checks()
