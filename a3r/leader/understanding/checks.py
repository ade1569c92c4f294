"""Whether a reading says what the goal says: every key has its quote, every quote is there, every number stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from a3r.core.errors import GoalError
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_paths import path_mistakes
from a3r.leader.goal_rules import find_mistakes
from a3r.leader.goal_text import FrontMatter, validated
from a3r.leader.understanding.demands import constraints_of, name_of
from a3r.leader.understanding.reading import Reading, Source, Understanding

OWNED = frozenset({"name", "planner", "review", "pilot", "constraints", "capacity"})
"""Keys that a model never writes: code or a person does."""
OPEN = frozenset({"task", "factors"})
"""Keys that may be assumed. A missing model, path or budget is for a person to say; the rest has defaults."""
SPREAD = frozenset({"factors", "settings", "budget", "criterion", "seeds", "metric"})
"""Sections whose parts need a source each."""
LITERAL = frozenset({"model", "code", "reference", "write_to", "python"})
"""Keys whose words themselves must stand in the quote."""
WALLS = ("client.sandbox.", "client.environment.")
"""Where generated code runs and what it may reach: never from a text that somebody else may have written into."""
METRIC = {"name": "held_out_reward", "direction": "maximize"}
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*(?:e-?\d+)?", re.IGNORECASE)
_WORD = re.compile(r"[a-z]{3,}", re.IGNORECASE)


def understand(
    reading: Reading, prose: str, given: Mapping[str, Any], path: Path
) -> tuple[Understanding | None, list[str]]:
    """The goal, or what is wrong with the reading (sentences for the model that made it).

    Args:
        reading: the model's reply.
        prose: the goal without front matter.
        given: front matter that a person wrote; it stands, and the reading only adds to it.
        path: the goal's file; paths in the goal start at its folder.
    """
    faults = list(_faults(reading, prose))
    if faults:
        return None, faults
    data = _merged(reading, prose, given)
    spec, faults = _valid(data, path)
    if spec is None or faults:
        return None, faults
    carried = [source.quote for source in reading.sources]
    return (
        Understanding(
            goal_spec=spec.model_dump(mode="json"),
            sources=reading.sources,
            assumptions=reading.assumptions,
            in_words=tuple(c for c in spec.constraints if not any(_in(q, c) for q in carried)),
            missing=tuple(m.text for m in path_mistakes(spec, path.parent)),
        ),
        [],
    )


def _valid(data: dict[str, Any], path: Path) -> tuple[GoalSpec | None, list[str]]:
    """The spec, and the mistakes that another reading could put right; paths that are not there are a person's."""
    try:
        spec = validated(FrontMatter(data, "", 1), path)
    except GoalError as error:
        return None, [str(m) for m in error.details.get("mistakes") or [error.message]]
    of_paths = {m.text for m in path_mistakes(spec, path.parent)}
    return spec, [m.text for m in find_mistakes(spec, path.parent) if m.text not in of_paths]


# --- the reading against the goal's words ----------------------------------------------------------------------


def _faults(reading: Reading, prose: str) -> Iterator[str]:
    owned = sorted(OWNED & set(reading.front_matter))
    if owned:
        yield f"leave out {', '.join(owned)}: code or a person fills that in"
    for name in sorted(set(_walls(reading.front_matter))):
        yield f"leave out {name!r}: only a person sets it, in the front matter"
    leaves = dict(_leaves(reading.front_matter))
    sources = {source.key: source for source in reading.sources}
    assumed = {a.key for a in reading.assumptions}
    for key in sorted((set(sources) | assumed) - set(leaves)):
        yield f"{key!r} is no key of the front matter that you gave (keys: {', '.join(leaves)})"
    for key, value in leaves.items():
        if key in sources:
            yield from _source_faults(sources[key], value, prose)
        elif key not in assumed:
            yield f"{key!r} has neither a source in the goal nor an assumption"
        elif key.split(".")[0] not in OPEN:
            yield f"{key!r} may not be assumed: quote the goal, or leave the key out"
    for name in _factor_names(reading.front_matter):
        words = [w.lower() for w in _WORD.findall(name)]
        if words and not any(w in prose.lower() for w in words):
            yield f"the goal does not speak of a factor {name!r}"


def _walls(value: JsonValue | Mapping[str, JsonValue]) -> Iterator[str]:
    """Names of settings that open or close walls, wherever they stand: as a key, or as a factor's path."""
    if isinstance(value, str):
        if value.startswith(WALLS):
            yield value
    elif isinstance(value, list):
        for part in value:
            yield from _walls(part)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _walls(key)
            yield from _walls(part)


def _leaves(data: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    """The keys that need a source each: sections are spread by one level."""
    for key, value in data.items():
        if key in OWNED:
            continue
        if key in SPREAD and isinstance(value, dict):
            yield from ((f"{key}.{name}", part) for name, part in value.items())
        else:
            yield key, value


def _source_faults(source: Source, value: JsonValue, prose: str) -> Iterator[str]:
    if not _in(source.quote, prose):
        yield f"{source.key!r}: the goal does not hold the words {source.quote!r}; copy them exactly"
        return
    said = {_number(n) for n in _NUMBER.findall(source.quote)}
    for number in _numbers(value):
        if number not in said:
            yield f"{source.key!r}: {number:g} does not stand in the quote {source.quote!r}"
    if source.key in LITERAL:
        for text in _texts(value):
            if not _in(text.rstrip("/."), source.quote):
                yield f"{source.key!r}: {text!r} does not stand in the quote {source.quote!r}"


def _in(part: str, whole: str) -> bool:
    """Whether the words occur, white space and letter case aside (a goal may come from a page with broken lines)."""
    return bool(_tight(part)) and _tight(part) in _tight(whole)


def _tight(text: str) -> str:
    return "".join(text.split()).lower()


def _number(text: str) -> float:
    """``1,000`` and ``1000`` are the same, ``0,5`` is ``0.5``."""
    plain = re.sub(r",(?=\d{3}\b)", "", text).replace(",", ".")
    try:
        return float(plain)
    except ValueError:
        return float("nan")


def _numbers(value: JsonValue) -> Iterator[float]:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, (int, float)):
        yield float(value)
        return
    for part in value.values() if isinstance(value, dict) else value:
        yield from _numbers(part)


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _factor_names(data: Mapping[str, JsonValue]) -> list[str]:
    factors = data.get("factors")
    return list(factors) if isinstance(factors, dict) else []


# --- the goal as data ------------------------------------------------------------------------------------------


def _merged(reading: Reading, prose: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a person wrote stands; the reading fills in; code adds what neither may choose."""
    data: dict[str, Any] = {k: v for k, v in reading.front_matter.items() if k not in OWNED}
    for key, value in given.items():
        read = data.get(key)
        if key in SPREAD and isinstance(value, dict) and isinstance(read, dict):
            data[key] = cast("dict[str, Any]", read) | cast("dict[str, Any]", value)
        else:
            data[key] = value
    data.setdefault("name", name_of(prose))
    data.setdefault("constraints", list(constraints_of(prose)))
    data.setdefault("pilot", _pilot(reading))
    metric: object = data.get("metric") or {}
    data["metric"] = (
        {**METRIC, **cast("dict[str, Any]", metric)} if isinstance(metric, dict) else metric
    )
    data["planner"] = given.get("planner", "llm")
    return data


def _pilot(reading: Reading) -> str:
    keys = ", ".join(a.key for a in reading.assumptions) or "nothing"
    return f"The goal discloses no pilot. It was read from prose by a language model, which had to assume: {keys}."
