"""The openai SDK in strict mode: every response and every event must validate against its own types."""

import asyncio

import openai
from openai import AsyncOpenAI, OpenAI
from probe import check, equal, raises, run_checks
from pydantic import BaseModel
from task import API_KEY, BASE_URL, MODEL, SCHEMA

strict = OpenAI(_strict_response_validation=True)
FUNCTION = {"name": "add", "description": "Add.", "parameters": SCHEMA}
CHAT_TOOLS: list = [{"type": "function", "function": FUNCTION}]
TOOLS: list = [{"type": "function", "strict": False, **FUNCTION}]


class Sum(BaseModel):
    """What structured outputs are parsed into."""

    total: int


def say(key: str) -> list:
    """Messages that make the scripted model answer with its text of that name."""
    return [{"role": "user", "content": f"@@{key}@@"}]


def chat(key: str, **more):
    """One chat call."""
    return strict.chat.completions.create(model=MODEL, messages=say(key), **more)


@check
def chat_text() -> None:
    """POST /v1/chat/completions: text and usage"""
    whole = chat("text")
    equal(whole.choices[0].message.content, "The sum is é 85 ✓.")
    equal(whole.choices[0].finish_reason, "stop")
    usage = whole.usage
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)


@check
def chat_choices() -> None:
    """POST /v1/chat/completions: n, logprobs, top_logprobs, penalties, seed, logit_bias"""
    whole = chat(
        "text", n=3, logprobs=True, top_logprobs=2, seed=7, logit_bias={"30": 1},
        presence_penalty=0.5, frequency_penalty=0.5, top_p=0.9, temperature=0.7,
    )  # fmt: skip
    equal([choice.index for choice in whole.choices], [0, 1, 2])
    tokens = whole.choices[0].logprobs.content
    spelled = b"".join(bytes(token.bytes) for token in tokens).decode()
    equal("The sum is é 85 ✓." in spelled, True)


@check
def chat_tools() -> None:
    """POST /v1/chat/completions: parallel tool calls, and their results sent back"""
    message = chat("calls", tools=CHAT_TOOLS).choices[0].message
    equal([call.function.name for call in message.tool_calls], ["add", "add"])
    equal(message.content, "Adding.")
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "3"} for call in message.tool_calls
    ]
    history = [*say("calls"), message, *results, *say("text")]
    again = strict.chat.completions.create(model=MODEL, messages=history, tools=CHAT_TOOLS)
    equal(again.choices[0].finish_reason, "stop")


@check
def chat_stop() -> None:
    """POST /v1/chat/completions: stop strings and max_tokens"""
    equal(chat("text", stop=["85"]).choices[0].message.content, "The sum is é ")
    cut = chat("text", max_completion_tokens=2)
    equal((cut.choices[0].finish_reason, cut.usage.completion_tokens), ("length", 2))


@check
def chat_thinking() -> None:
    """POST /v1/chat/completions: thinking comes as reasoning_content, streamed alike"""
    whole = chat("thinking").choices[0].message
    equal((whole.reasoning_content, whole.content.strip()), ("Hm, é.", "Done."))
    streamed = [chunk.choices[0].delta for chunk in chat("thinking", stream=True)]
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in streamed)
    equal(thought, whole.reasoning_content)


@check
def chat_structured() -> None:
    """POST /v1/chat/completions: .parse() with a pydantic class"""
    parsed = strict.chat.completions.parse(model=MODEL, messages=say("json"), response_format=Sum)
    equal(parsed.choices[0].message.parsed, Sum(total=85))


@check
def chat_stream() -> None:
    """POST /v1/chat/completions, streamed: .stream() gives the same message, end and usage as .create()"""
    for key, tools in (("text", openai.omit), ("calls", CHAT_TOOLS)):
        whole = chat(key, tools=tools)
        with strict.chat.completions.stream(
            model=MODEL, messages=say(key), tools=tools, stream_options={"include_usage": True}
        ) as events:
            for _ in events:
                pass
            last = events.get_final_completion()
        mine, theirs = last.choices[0], whole.choices[0]
        equal(mine.message.content, theirs.message.content)
        equal(mine.finish_reason, theirs.finish_reason)
        equal(_named(mine.message.tool_calls), _named(theirs.message.tool_calls))
        equal(last.usage.completion_tokens, whole.usage.completion_tokens)


def _named(calls: list | None) -> list:
    return [(call.function.name, call.function.arguments) for call in calls or []]


@check
def chat_stream_choices() -> None:
    """POST /v1/chat/completions, streamed: n, logprobs, usage; several deltas"""
    said = ["", ""]
    chunks = list(
        chat("text", stream=True, n=2, logprobs=True, stream_options={"include_usage": True})
    )
    for chunk in chunks:
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    equal(said, ["The sum is é 85 ✓."] * 2)
    equal(chunks[-1].usage.completion_tokens > 0 and len(chunks) > 8, True)


@check
def chat_async() -> None:
    """POST /v1/chat/completions: AsyncOpenAI, eight streams at once"""

    async def one(client: AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(
            model=MODEL, messages=say("text"), stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    async def many() -> list[str]:
        async with AsyncOpenAI(_strict_response_validation=True) as client:
            return await asyncio.gather(*(one(client) for _ in range(8)))

    equal(set(asyncio.run(many())), {"The sum is é 85 ✓."})


@check
def chat_by_url() -> None:
    """POST /e/<key>/v1/chat/completions: the key in the URL only"""
    root = BASE_URL.removesuffix("/v1")
    client = OpenAI(
        base_url=f"{root}/e/{API_KEY}/v1", api_key="-", _strict_response_validation=True
    )
    whole = client.chat.completions.create(model=MODEL, messages=say("text"))
    equal(whole.choices[0].finish_reason, "stop")


@check
def completions() -> None:
    """POST /v1/completions: text, n, logprobs, echo, several prompts"""
    whole = strict.completions.create(
        model=MODEL, prompt="@@text@@", logprobs=2, n=2, max_tokens=99
    )
    equal([choice.text for choice in whole.choices], ["The sum is é 85 ✓."] * 2)
    equal(len(whole.choices[0].logprobs.tokens), len(whole.choices[0].logprobs.token_logprobs))
    several = strict.completions.create(model=MODEL, prompt=["@@text@@", "@@json@@"], echo=True)
    equal([choice.index for choice in several.choices], [0, 1])
    equal(several.choices[1].text.startswith("@@json@@"), True)


@check
def completions_stream() -> None:
    """POST /v1/completions, streamed (not strict, see the limits)"""
    stream = OpenAI().completions.create(model=MODEL, prompt="@@text@@", stream=True, max_tokens=99)
    equal("".join(c.choices[0].text for c in stream if c.choices), "The sum is é 85 ✓.")


@check
def responses_text() -> None:
    """POST /v1/responses: text, instructions, usage, log-probabilities"""
    whole = strict.responses.create(
        model=MODEL, input="@@text@@", instructions="Be brief.",
        include=["message.output_text.logprobs"], top_logprobs=2,
    )  # fmt: skip
    equal((whole.output_text, whole.status), ("The sum is é 85 ✓.", "completed"))
    equal(len(whole.output[0].content[0].logprobs) > 3, True)


@check
def responses_state() -> None:
    """POST /v1/responses: previous_response_id; GET, DELETE and input_items"""
    first = strict.responses.create(model=MODEL, input="@@calls@@", tools=TOOLS)
    outputs: list = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "3"}
        for item in first.output
        if item.type == "function_call"
    ]
    more = [*outputs, {"role": "user", "content": "@@text@@"}]
    second = strict.responses.create(
        model=MODEL, input=more, previous_response_id=first.id, tools=TOOLS
    )
    equal(second.previous_response_id, first.id)
    equal(strict.responses.retrieve(second.id).output_text, second.output_text)
    items = list(strict.responses.input_items.list(second.id))
    equal(len(items), 1 + 3 + 3)
    strict.responses.delete(second.id)
    raises(openai.NotFoundError, lambda: strict.responses.retrieve(second.id))


@check
def responses_structured() -> None:
    """POST /v1/responses: .parse() with a pydantic class"""
    parsed = strict.responses.parse(model=MODEL, input="@@json@@", text_format=Sum)
    equal(parsed.output_parsed, Sum(total=85))


@check
def responses_stream() -> None:
    """POST /v1/responses, streamed: text, thinking and calls; the same output as .create(), numbers without gaps"""
    for key in ("text", "calls", "thinking"):
        whole = strict.responses.create(model=MODEL, input=f"@@{key}@@", tools=TOOLS)
        with strict.responses.stream(model=MODEL, input=f"@@{key}@@", tools=TOOLS) as events:
            numbers = [event.sequence_number for event in events if event.type.count(".") > 0]
            last = events.get_final_response()
        equal(numbers == sorted(numbers) and numbers[0] == 0, True)
        equal([item.type for item in last.output], [item.type for item in whole.output])
        equal(last.output_text, whole.output_text)
        equal(last.usage, whole.usage)


@check
def models() -> None:
    """GET /v1/models and /v1/models/{id}"""
    listed = strict.models.list().data
    equal(strict.models.retrieve(listed[0].id).id, listed[0].id)


@check
def errors() -> None:
    """Errors: 400 with param and code, 401, 404, too long a prompt; none is retried"""
    bad = raises(openai.BadRequestError, lambda: chat("text", temperature=-1))
    equal((bad.param, bad.type), ("temperature", "invalid_request_error"))
    long = [{"role": "user", "content": "word " * 500_000}]
    create = strict.chat.completions.create
    over = raises(openai.BadRequestError, lambda: create(model=MODEL, messages=long))
    equal(over.code, "context_length_exceeded")
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    raises(
        openai.BadRequestError,
        lambda: create(model=MODEL, messages=[{"role": "user", "content": image}]),
    )
    stranger = strict.with_options(api_key="sk-nobody")
    raises(openai.AuthenticationError, lambda: stranger.models.list())
    raises(openai.NotFoundError, lambda: strict.models.retrieve("no-such-model"))


run_checks()
