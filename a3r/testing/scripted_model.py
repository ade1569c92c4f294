"""A language model in the process that follows a script: no HTTP, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from a3r.core.errors import ModelRefused, ModelUnavailable
from a3r.core.llm import ModelReply, ModelRequest, Price
from a3r.testing.stand_in.script import Answer, Script

CHARS_A_TOKEN = 3


class ScriptedModel:
    """Implements ``a3r.core.llm.LanguageModel``. ``asked`` holds every request that reached it."""

    def __init__(
        self,
        script: Script | Iterable[Answer],
        *,
        price: Price | None = Price(prompt_usd=1e-6, completion_usd=4e-6),  # noqa: B008 - frozen
        name: str = "scripted/model",
        before_reply: Callable[[ModelRequest], None] | None = None,
    ) -> None:
        """``script``: a function of the request, or answers that are given out one by one.

        ``before_reply`` is called once the request was "sent": what it raises is a crash with the call in flight.
        """
        self._script = script if callable(script) else _given_out(script)
        self._price, self._name, self._before_reply = price, name, before_reply
        self.asked: list[ModelRequest] = []

    @property
    def name(self) -> str:
        """As it was given."""
        return self._name

    def price(self) -> Price | None:
        """As it was given."""
        return self._price

    def count_tokens(self, request: ModelRequest) -> int:
        """A third of the request's characters, rounded up."""
        return tokens(request.model_dump_json())

    def complete(self, request: ModelRequest) -> ModelReply:
        """What the script says."""
        self.asked.append(request)
        if self._before_reply is not None:
            self._before_reply(request)
        answer = self._script(request)
        if answer.status != 200:
            raise _refusal(answer)
        written = answer.text + "".join(call.name + call.arguments for call in answer.tool_calls)
        return ModelReply(
            text=answer.text,
            tool_calls=answer.tool_calls,
            finish_reason=answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop"),
            prompt_tokens=self.count_tokens(request),
            completion_tokens=min(tokens(written), request.max_tokens),
            model=self._name,
        )


def tokens(text: str) -> int:
    """A third of its characters, rounded up."""
    return -(-len(text) // CHARS_A_TOKEN)


def _refusal(answer: Answer) -> ModelUnavailable | ModelRefused:
    message = answer.error or f"the script answers with status {answer.status}"
    if answer.status in (408, 429) or answer.status >= 500:
        return ModelUnavailable(message, retry_after_s=answer.retry_after_s)
    return ModelRefused(message)


def _given_out(answers: Iterable[Answer]) -> Script:
    left = iter(answers)

    def script(_request: ModelRequest) -> Answer:
        return next(left, Answer(status=400, error="the script is at its end"))

    return script
