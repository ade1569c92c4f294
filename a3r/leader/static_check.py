"""Looks at a client's code before anyone runs or reviews it: does it parse, is it a client, what does it reach for.

This keeps honest code honest and makes review short. It is not a sandbox: the evaluator is what a client can not reach.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ALLOWED_IMPORTS = frozenset(
    {
        "__future__", "abc", "argparse", "asyncio", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum",
        "fractions", "functools", "hashlib", "itertools", "json", "logging", "math", "operator", "pathlib", "random", "re", "statistics",
        "string", "sys", "textwrap", "time", "traceback", "types", "typing", "unicodedata", "openai", "orjson", "pydantic",
    }
)  # fmt: skip
"""Top-level modules; none of them opens a connection or starts a process by itself (openai talks to the episode's URL)."""
ALLOWED_SWARM = ("swarm.client", "swarm.protocol", "swarm.tasks")
FORBIDDEN_NAMES = frozenset(
    {"eval", "exec", "compile", "__import__", "globals", "breakpoint", "input"}
)
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What the parser says to code that is wrong, or nested thousands deep."""
REQUIRED_FUNCTIONS = ("run_agent", "reward", "train", "evaluate", "main")


HELD_OUT_KEYS = frozenset({"items_file", "out_file"})
"""Keys of the spec that only the evaluation may touch."""


def check_folder(
    folder: Path, entry: str = "client.py", functions: tuple[str, ...] = REQUIRED_FUNCTIONS
) -> list[str]:
    """Problems of every Python file in ``folder`` and of its ``entry`` (which must define ``functions``); empty = fine."""
    if not (folder / entry).is_file():
        return [f"there is no {entry}"]
    siblings = frozenset(p.stem for p in folder.glob("*.py"))
    problems: list[str] = []
    for file in sorted(folder.rglob("*.py")):
        try:
            source = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            problems.append(f"{file.name} is not UTF-8")
            continue
        required = functions if file == folder / entry else ()
        problems += [
            f"{file.name}: {p}" for p in check_source(source, siblings=siblings, required=required)
        ]
    return problems


def check_source(
    source: str,
    *,
    siblings: frozenset[str] = frozenset(),
    required: tuple[str, ...] = REQUIRED_FUNCTIONS,
) -> list[str]:
    """Problems of one file, in order of line; empty = fine. The code is parsed, never run.

    Args:
        source: Python code.
        siblings: modules that lie beside it and may be imported.
        required: functions that must be defined at its top level.
    """
    try:
        tree = ast.parse(source)
    except UNPARSABLE as error:
        line = getattr(error, "lineno", None)
        return [
            f"does not parse: {getattr(error, 'msg', error)}" + (f" (line {line})" if line else "")
        ]
    defined = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    missing = [f"there is no function {name}()" for name in required if name not in defined]
    found = [p for node in ast.walk(tree) for p in _problems(node, siblings)]
    found += [*_addresses(tree), *_held_out_in_training(tree)]
    return missing + [text for _, text in sorted(found)]


def top_functions(source: str) -> dict[str, str]:
    """Name -> code of each top-level function, without comments and layout; empty when the code does not parse."""
    try:
        tree = ast.parse(source)
    except UNPARSABLE:
        return {}
    return {n.name: ast.dump(n) for n in tree.body if isinstance(n, _FUNCTION)}


def words_of(source: str) -> frozenset[str]:
    """Every string constant, e.g. the names of the arguments that a client reads; empty when the code does not parse."""
    try:
        tree = ast.parse(source)
    except UNPARSABLE:
        return frozenset()
    return frozenset(text for n in ast.walk(tree) if (text := _text(n)) is not None)


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def _text(node: ast.AST) -> str | None:
    """The value of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _addresses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Addresses in the code: a client talks to the URL that it is given, and to nobody else. Docstrings may name some."""
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        text = _text(node)
        if text is not None and "://" in text and id(node) not in prose:
            line = getattr(node, "lineno", 0)
            yield line, f"line {line}: names the address {text[:60]!r}"


def _held_out_in_training(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The held-out items in what ``train`` calls, directly or through functions of this file."""
    functions = {n.name: n for n in tree.body if isinstance(n, _FUNCTION)}
    todo = [name for name in ("train", "run_agent", "reward") if name in functions]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Name) and node.id in functions:
                todo.append(node.id)
            text = _text(node)
            if text in HELD_OUT_KEYS:
                line = getattr(node, "lineno", 0)
                yield line, f"line {line}: {name}() reads {text!r} of the evaluation in training"


def _problems(node: ast.AST, siblings: frozenset[str]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _import(alias.name, node.lineno, siblings)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            yield node.lineno, f"line {node.lineno}: relative import"
        else:
            yield from _import(node.module or "", node.lineno, siblings)
            if node.module == "swarm":
                for alias in node.names:
                    yield from _import(f"swarm.{alias.name}", node.lineno, siblings)
    elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
        yield node.lineno, f"line {node.lineno}: uses {node.id!r}"
    elif isinstance(node, ast.Attribute) and _is_dunder(node.attr):
        yield node.lineno, f"line {node.lineno}: reaches for {node.attr!r}"


def _import(module: str, line: int, siblings: frozenset[str]) -> Iterator[tuple[int, str]]:
    top = module.split(".")[0]
    if top == "swarm":
        fine = module == "swarm" or any(
            module == allowed or module.startswith(f"{allowed}.") for allowed in ALLOWED_SWARM
        )
    else:
        fine = top in ALLOWED_IMPORTS or module in siblings
    if not fine:
        yield line, f"line {line}: imports {module!r}, which a client does not need"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in {"__name__", "__init__"}
