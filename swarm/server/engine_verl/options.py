"""Puts keys into a tree of defaults, and refuses those that it does not have, with the nearest that it has.

Knows dictionaries, not verl: the tree is what the installed verl ships, so a key is checked against the version that runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from swarm.protocol.errors import ConfigError

Tree = dict[str, Any]
FieldsOf = Callable[[str], frozenset[str]]
"""Dotted name of a class -> the names of its fields: a section may take more keys than its defaults list."""
TARGET = "_target_"


def dotted(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted key -> value of nested or dotted options; lists and empty mappings are values.

    Raises:
        ConfigError: the same key twice, once nested and once dotted.
    """
    flat: dict[str, Any] = {}
    for key, value in options.items():
        nested = isinstance(value, Mapping) and value
        found = dotted(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
        if twice := sorted(set(flat) & set(found)):
            raise ConfigError(f"verl.options has {twice[0]!r} twice.", hint="Say it once.")
        flat |= found
    return flat


def value_at(tree: Mapping[str, Any], key: str) -> Any:
    """Return what a dotted key has in the tree; None when it has nothing."""
    node: Any = tree
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def overlaid(
    tree: Tree,
    options: Mapping[str, Any],
    fields_of: FieldsOf = lambda _: frozenset(),
    *,
    known: Tree | None = None,
) -> Tree:
    """Return a copy of ``tree`` with the (nested or dotted) options put in.

    ``known`` has the keys that there are, when that is not the tree itself: what was put into an empty section is no list of all.
    Below an empty or missing section (``override_config: {}``) any key goes: there verl passes on to another library.

    Raises:
        ConfigError: the tree has no such key (the hint names the nearest one), a section is given a value, or a value is of
            another kind than the default.
    """
    out = copy.deepcopy(tree)
    for key, value in dotted(options).items():
        _check(tree if known is None else known, key, fields_of)
        _check_kind(key, value_at(tree, key), value)
        _put(out, key, value)
    return out


def _put(tree: Tree, key: str, value: Any) -> None:
    *path, last = key.split(".")
    node = tree
    for name in path:
        node[name] = node.get(name) or {}
        node = node[name]
    node[last] = value


def _check(tree: Tree, key: str, fields_of: FieldsOf) -> None:
    """Walk ``key`` down the defaults, until it is found, or is below a section that takes anything."""
    node: Any = tree
    walked = ""
    for name in key.split("."):
        if not isinstance(node, dict):
            raise ConfigError(
                f"verl.options: {walked!r} is a value and has no keys; sent was {key!r}.",
                hint=f"Set {walked!r} itself.",
            )
        _check_name(node, name, walked, fields_of)
        walked = f"{walked}.{name}" if walked else name
        node = node.get(name)
        if node is None or node == {}:
            return


def _check_name(node: Tree, name: str, walked: str, fields_of: FieldsOf) -> None:
    known = {str(k) for k in node} | fields_of(str(node.get(TARGET, "")))
    if name in known:
        return
    above = f"{walked}." if walked else ""
    near = get_close_matches(name, known, n=1)
    listed = ", ".join(sorted(known - {TARGET})[:12])
    raise ConfigError(
        f"verl.options: the installed verl has no key {above + name!r}.",
        hint=f"Did you mean {above + near[0]!r}?" if near else f"It has here: {listed}.",
    )


def _check_kind(key: str, default: Any, value: Any) -> None:
    """Compare with the default's kind; one that is missing or says where to look (``${...}``) tells nothing."""
    if isinstance(default, dict) and default:
        raise ConfigError(
            f"verl.options: {key!r} is a section; sent was {value!r}.",
            hint=f"Set a key in it: {', '.join(sorted(set(map(str, default)) - {TARGET})[:6])}.",
        )
    if default is None or value is None or str(default).startswith("${"):
        return
    wanted = _kind(default)
    # A name is often short for a list of names ("all-linear").
    if _kind(value) == wanted or (wanted == "text" and _kind(value) == "a list"):
        return
    raise ConfigError(
        f"verl.options: {key!r} takes {wanted}; sent was {value!r}.",
        hint=f"The default is {default!r}. YAML reads 1e-6 as text: write 1.0e-6.",
    )


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list | tuple) else "a mapping"
