"""A short name for the version of an agent's code: a hash of its source file and of what that file imports beside it.

"Beside it" are the modules under the folder from which the agent's file is importable: the script's own folder, or the folder
that holds its outermost package. They are found by reading the import statements, so that the hash does not depend on what
happens to be loaded. Installed packages, data files and settings are not looked at; give a ``code_hash`` of your own when
those decide rewards.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

logger = logging.getLogger(__name__)

HASH_CHARS = 16
FILE_LIMIT = 2000
"""Files followed at most; an agent inside a larger tree is named by the first ones found, which is still the same each time."""


def code_hash_of(agent: Any) -> str:
    """The hash of the agent's code, 16 hexadecimal digits; empty when its source is not a file (a notebook, ``python -c``)."""
    file = source_of(agent)
    return "" if file is None else hash_of_file(file)


def source_of(agent: Any) -> Path | None:
    """The file that defines ``agent`` (a function, a method, a partial, or an object with ``__call__``); None when there is none."""
    while isinstance(agent, functools.partial):
        agent = agent.func
    found: Any = inspect.unwrap(agent) if callable(agent) else agent
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        found = cast("type[Any]", type(found))
    try:
        name = inspect.getsourcefile(found)
    except TypeError:  # built in, or its module is gone
        return None
    path = Path(name) if name else None
    return path.resolve() if path is not None and path.is_file() else None


def hash_of_file(file: Path) -> str:
    """The hash of ``file`` and of the modules beside it that it imports, directly or not. Order and place do not count."""
    root = _root(file)
    digest = hashlib.sha256()
    for path, source in sorted(_closure(file, root).items()):
        name = path.relative_to(root).as_posix().encode()
        digest.update(b"%d %s %d " % (len(name), name, len(source)))
        digest.update(source)
    return digest.hexdigest()[:HASH_CHARS]


def _root(file: Path) -> Path:
    """The folder from which ``file`` is importable: above its outermost package."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def _closure(file: Path, root: Path) -> dict[Path, bytes]:
    """Every file reached from ``file`` by imports that lead to a file under ``root``, with its bytes."""
    found: dict[Path, bytes] = {}
    waiting = [file]
    while waiting and len(found) < FILE_LIMIT:
        path = waiting.pop()
        if path in found:
            continue
        try:
            found[path] = path.read_bytes()
        except OSError as error:
            logger.debug("not part of the code hash: %s", error)
            continue
        waiting += sorted(_imports(path, found[path], root))
    return found


def _imports(path: Path, source: bytes, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # its bytes count all the same
        return
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, tuple(alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            yield from _files(root, module)
            for alias in node.names:
                yield from _files(root, (*module, alias.name))


def _files(root: Path, module: tuple[str, ...]) -> Iterator[Path]:
    """The file of ``module`` and the ``__init__`` of every package above it, as far as they lie under ``root``."""
    for end in range(1, len(module) + 1):
        place = root.joinpath(*module[:end])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                yield file
