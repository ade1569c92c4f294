"""Reads a structured reply out of a model's text: fences, prose around, small slips. Never completes what was cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

MAX_STARTS = 200
"""Places in a reply at which a JSON value is looked for."""
MAX_FAULTS = 8
THINKING = re.compile(r"<(think|thinking)>.*?</\1>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[a-zA-Z0-9_+-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
OPENING = re.compile(r"[{\[]")
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")


class Misfit(Exception):
    """The reply does not have the asked form; the message is fit for the model."""


def read_answer(text: str, adapter: TypeAdapter[Any]) -> Any:
    """The answer in ``text``.

    Raises:
        Misfit: none, or two that differ.
    """
    fits: list[Any] = []
    fault = ""
    for value in _values(text):
        try:
            found = _fitted(value, adapter)
        except Misfit as misfit:
            fault = fault or str(misfit)
        else:
            if found not in fits:
                fits.append(found)
    if len(fits) > 1:
        raise Misfit("the reply holds several answers that differ; give one")
    if fits:
        return fits[0]
    raise Misfit(fault or "the reply holds no complete JSON value")


def _values(text: str) -> Iterator[object]:
    """JSON values in the text: the whole of it, else what stands in fences, else what stands in the prose."""
    bare = THINKING.sub("", text).strip().lstrip("\ufeff")
    for level in ([bare], FENCE.findall(bare)):
        found = [value for piece in level for value in _parsed(piece)]
        if found:
            yield from found
            return
    yield from _embedded(bare)


def _parsed(piece: str) -> list[object]:
    for read in (_strict, _without_trailing_commas):
        try:
            value = read(piece.strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, (dict, list)):
            return [cast("object", value)]
    return []


def _strict(piece: str) -> object:
    return json.loads(piece, parse_constant=_refuse_constant)


def _without_trailing_commas(piece: str) -> object:
    strings_apart = re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda m: m.group(1) or "", piece)
    return _strict(strings_apart)


def _refuse_constant(name: str) -> object:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


def _embedded(text: str) -> Iterator[object]:
    """Values in the prose, outermost ones only: a part of a value that was cut off is not taken for the answer."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = 0
    for _ in range(MAX_STARTS):
        start = OPENING.search(text, at)
        if start is None:
            return
        try:
            value, at = decoder.raw_decode(text, start.start())
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                return
            at = start.start() + 1
        except (ValueError, RecursionError):
            at = start.start() + 1
        else:
            yield value


def _fitted(value: object, adapter: TypeAdapter[Any]) -> Any:
    """The value as the asked type; a wrapper of one key is taken off, words of a closed set are matched loosely."""
    inner = next(iter(cast("dict[str, object]", value).values())) if _is_wrapper(value) else None
    candidates = [value] if inner is None else [value, inner]
    fault: ValidationError | None = None
    for candidate in candidates:
        try:
            return _validated(candidate, adapter)
        except ValidationError as error:
            fault = fault or error
    assert fault is not None
    raise Misfit(_words(fault)) from fault


def _is_wrapper(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    inner = list(cast("dict[str, object]", value).values())
    return len(inner) == 1 and isinstance(inner[0], dict)


def _validated(value: object, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        mended = _with_known_words(value, error)
        if mended is None:
            raise
        return adapter.validate_python(mended)


def _with_known_words(value: object, error: ValidationError) -> object | None:
    """A copy in which each word outside its closed set is the one member that differs only in case, space or hyphen; None: no."""
    copy: Any = json.loads(json.dumps(value))
    for fault in error.errors(include_url=False):
        if fault["type"] not in ("literal_error", "enum"):
            return None
        known = QUOTED.findall(str(fault.get("ctx", {}).get("expected", "")))
        near = [word for word in known if _plain(word) == _plain(str(fault["input"]))]
        if len(near) != 1 or not _put(copy, fault["loc"], near[0]):
            return None
    return copy


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word).casefold()


def _put(tree: Any, path: tuple[int | str, ...], word: str) -> bool:
    try:
        for key in path[:-1]:
            tree = tree[key]
        if tree[path[-1]] == word:
            return False
        tree[path[-1]] = word
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _words(error: ValidationError) -> str:
    """The faults, one a line, as the model is told them."""
    faults = error.errors(include_url=False)
    lines = [
        f"- {'.'.join(map(str, f['loc'])) or 'the whole'}: {f['msg']} (got {str(f['input'])[:80]!r})"
        for f in faults[:MAX_FAULTS]
    ]
    if len(faults) > MAX_FAULTS:
        lines.append(f"- and {len(faults) - MAX_FAULTS} more")
    return "\n".join(lines)
