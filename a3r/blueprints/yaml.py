"""YAML 1.2 in and out: ``1e-3`` is a number, ``no`` and ``on`` are words, and what is not JSON is refused with its line.

PyYAML speaks 1.1, where these differ: never read a blueprint or a goal with it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

NEVER_FOLD = 2**30
LONGEST = 2**20
"""Characters of one text; a goal or a blueprint of people has a few thousand."""
MOST_VALUES = 100_000
"""Values of one text, each counted as often as aliases repeat it: a few lines of aliases of aliases stand for billions."""


class YamlProblem(Exception):
    """Why a text is not what it should be; ``line`` counts from 1 within the text, None = not known."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def dump_yaml(value: dict[str, Any]) -> str:
    """Return the mapping as block YAML in its own order; ``load_yaml`` gives the same values and types back."""
    yaml = _yaml()
    representer: Any = yaml.representer
    representer.add_representer(str, _represent_text)
    representer.ignore_aliases = _never
    buffer = io.StringIO()
    cast("Any", yaml).dump(value, buffer)
    return buffer.getvalue()


def load_yaml(text: str) -> dict[str, Any]:
    """Return the mapping of a YAML 1.2 text; an empty text is an empty mapping.

    Raises:
        YamlProblem: bad syntax, a key twice, no mapping, too large, or a value that JSON does not have (a date, NaN, a tag).
    """
    if len(text) > LONGEST:
        raise YamlProblem(f"{len(text)} characters are too many (at most {LONGEST})", None)
    try:
        value: Any = cast("Any", _yaml()).load(text)
    except (YAMLError, ValueError, RecursionError, OverflowError) as err:
        raise _problem(err) from err
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise YamlProblem("expected 'key: value' lines", 1)
    try:
        if _count(cast("Any", value), {}) > MOST_VALUES:
            raise YamlProblem(f"it stands for more than {MOST_VALUES} values", None)
        odd = _not_json(cast("Any", value), ())
    except RecursionError as err:  # an alias to its own parent: endless
        raise YamlProblem("a value contains itself, or is nested too deeply", 1) from err
    if odd is not None:
        path, why = odd
        raise YamlProblem(f"{dotted(path)}: {why}", line_of(text, path))
    return cast("dict[str, Any]", value)


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line (from 1) of the value at ``path``, or of its nearest parent that is there; None for an empty text."""
    node: Any = cast("Any", _yaml()).compose(text)
    line: int | None = None
    for part in path:
        found, line = _child(node, part, line)
        if found is None:
            break
        node = found
    return line or (node.start_mark.line + 1 if node is not None else None)


def dotted(path: Sequence[str | int]) -> str:
    """``("servers", 0, "train")`` as ``servers[0].train``."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.removeprefix(".")


def _problem(error: Any) -> YamlProblem:
    if not isinstance(error, MarkedYAMLError):
        return YamlProblem(str(error), None)
    marked: Any = error  # its attributes carry no types
    mark = marked.problem_mark or marked.context_mark
    words = " ".join(str(part) for part in (marked.context, marked.problem) if part)
    return YamlProblem(words, mark.line + 1 if mark else None)


def _child(node: Any, part: str | int, line: int | None) -> tuple[Any, int | None]:
    if isinstance(node, MappingNode):
        for key, value in cast("Any", node).value:
            if key.value == part:
                return value, key.start_mark.line + 1
    if isinstance(node, SequenceNode) and isinstance(part, int):
        items = cast("Any", node).value
        if part < len(items):
            return items[part], items[part].start_mark.line + 1
    return None, line


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = NEVER_FOLD
    cast("Any", yaml).sort_base_mapping_type_on_output = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _represent_text(representer: Any, text: str) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    # Several lines are easiest to read and edit as a block, but a block cannot hold every text: the rest is escaped.
    lines = text.split("\n")
    if not all(line.isprintable() for line in lines):
        return '"'
    if len(lines) == 1:
        return None
    plain = text[:1] != "\n" and all(line == line.strip(" ") for line in lines)
    return "|" if plain else '"'


def _never(_value: Any) -> bool:
    return True


def _count(value: Any, known: dict[int, int]) -> int:
    """Values in ``value``, itself included; what several aliases share is looked at once and counted each time."""
    if isinstance(value, dict):
        inner = list(cast("dict[Any, Any]", value).values())
    elif isinstance(value, list):
        inner = cast("list[Any]", value)
    else:
        return 1
    key = id(cast("Any", value))
    if key not in known:
        known[key] = 1 + sum(_count(child, known) for child in inner)
    return known[key]


def _not_json(value: Any, path: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], str] | None:
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(cast("dict[Any, Any]", value).items())
    elif isinstance(value, list):
        children = list(enumerate(cast("list[Any]", value)))
    elif isinstance(value, float) and not math.isfinite(value):
        return path, f"{value!r} is no finite number"
    elif not isinstance(value, str | int | float | bool | None):
        return (
            path,
            f"{str(value)!r} is a {type(value).__name__}; put quotes around it to mean text",
        )
    for key, child in children:
        if isinstance(value, dict) and not isinstance(key, str):
            return path, f"the key {key!r} is no text; put quotes around it"
        found = _not_json(child, (*path, key))
        if found is not None:
            return found
    return None
