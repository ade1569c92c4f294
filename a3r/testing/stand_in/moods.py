"""What can be wrong with a provider: each mood turns a script that behaves into one that does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from a3r.core.llm import ModelRequest
from a3r.testing.stand_in.script import Answer, Script, turn_of

Mood = Callable[[Script], Script]


def fenced(script: Script) -> Script:
    """The JSON stands in a fence, with talk before and after it."""
    return _text(
        script, lambda t: f"Certainly!\n\n```json\n{t}\n```\n\nLet me know if {{this}} helps."
    )


def with_prose(script: Script) -> Script:
    """The JSON is followed by talk."""
    return _text(script, lambda t: f"{t}\n\nI chose this because it is [in my view] best.")


def cut_off(script: Script) -> Script:
    """The first reply of each conversation ends in the middle, without saying so; asked again it is whole."""
    return _first(script, lambda t: t[: max(1, len(t) * 2 // 3)])


def wrong_word(script: Script) -> Script:
    """The first reply has words that belong to no closed set."""
    return _first(
        script, lambda t: _with_object(t, lambda o: {k: _misspelt(v) for k, v in o.items()})
    )


def missing_key(script: Script) -> Script:
    """The first reply lacks its first key."""
    return _first(script, lambda t: _with_object(t, lambda o: dict(list(o.items())[1:])))


def never_right(script: Script) -> Script:
    """No reply fits, however often it is asked again."""
    return _text(script, lambda _: "I am sorry, but I would rather describe it in words.")


def slow(delay_s: float) -> Mood:
    """Every answer takes a while."""

    def mood(script: Script) -> Script:
        return lambda request: replace(script(request), delay_s=delay_s)

    return mood


def refusing(status: int = 401, error: str = "no such key") -> Mood:
    """Every call is refused."""
    return lambda _script: lambda _request: Answer(status=status, error=error)


class Failing:
    """The first calls meet these statuses, then all is well: a mood that counts, over all conversations."""

    def __init__(
        self, statuses: Sequence[int], *, error: str = "", retry_after_s: float | None = None
    ) -> None:
        self._left, self._lock = list(statuses), threading.Lock()
        self._error, self._retry_after_s = error, retry_after_s

    def __call__(self, script: Script) -> Script:
        """The script behind the failures."""

        def answer(request: ModelRequest) -> Answer:
            with self._lock:
                status = self._left.pop(0) if self._left else 200
            if status == 200:
                return script(request)
            return Answer(status=status, error=self._error, retry_after_s=self._retry_after_s)

        return answer


MOODS: dict[str, Callable[[], Mood]] = {
    "good": lambda: lambda script: script,
    "fenced": lambda: fenced,
    "prose": lambda: with_prose,
    "cut-off": lambda: cut_off,
    "wrong-word": lambda: wrong_word,
    "missing-key": lambda: missing_key,
    "never-right": lambda: never_right,
    "slow": lambda: slow(5.0),
    "limited": lambda: Failing([429] * 3, error="slow down", retry_after_s=1.0),
    "down": lambda: Failing([500, 503, 502], error="the provider is down"),
    "refusing": lambda: refusing(),
    "no-credit": lambda: refusing(429, "insufficient_quota: you exceeded your current quota"),
}
"""By name, each time anew."""


def _text(script: Script, change: Callable[[str], str]) -> Script:
    def changed(request: ModelRequest) -> Answer:
        answer = script(request)
        if answer.status != 200 or answer.tool_calls:
            return answer
        return replace(answer, text=change(answer.text))

    return changed


def _first(script: Script, change: Callable[[str], str]) -> Script:
    changed = _text(script, change)

    def once(request: ModelRequest) -> Answer:
        asked_again = "does not fit" in request.messages[-1].content and turn_of(request) > 0
        return script(_before_repair(request)) if asked_again else changed(request)

    return once


def _before_repair(request: ModelRequest) -> ModelRequest:
    """The request without the reply that did not fit and the words about it, so that the script says the same again."""
    kept = request.messages
    while kept[-1].role == "user" and "does not fit" in kept[-1].content and len(kept) > 2:
        kept = kept[:-2]
    return request.model_copy(update={"messages": kept})


def _with_object(text: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return json.dumps(change(value)) if isinstance(value, dict) else text  # pyright: ignore[reportUnknownArgumentType]


def _misspelt(value: Any) -> Any:
    """A short word becomes one that nobody knows; anything else stays."""
    return f"{value}-ish" if isinstance(value, str) and 0 < len(value) < 20 else value
