"""The edge of the commands: where the workspace comes from, how results and failures are told.

Only here (and in ``config``) is the environment read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.core.errors import A3RError

if TYPE_CHECKING:
    from a3r.core.workspace import Workspace
    from a3r.hub.client import HubClient

Json = dict[str, Any]

JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, for failures too.")
]


@contextmanager
def reported(*, as_json: bool) -> Generator[None]:
    """Tell an ``A3RError`` as ``error:`` and ``hint:`` on stderr (or one JSON document on stdout); leave by its exit code."""
    try:
        yield
    except A3RError as error:
        tell(error, as_json=as_json)
        raise typer.Exit(error.exit_code) from None


def tell(error: A3RError, *, as_json: bool) -> None:
    """Write one error where it belongs."""
    if as_json:
        print(json_line(error.envelope()))
        return
    say(f"error: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")


def emit(document: Json, lines: Iterable[str], *, as_json: bool) -> None:
    """Write the result to stdout: the document, or its lines for people."""
    if as_json:
        print(json_line(document))
        return
    for line in lines:
        print(printable(line))


def json_line(document: Json) -> str:
    """One line of JSON whose every character shows: what could steer a terminal, or has no bytes in UTF-8, is escaped."""
    text = json.dumps(document, default=str, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def say(line: str) -> None:
    """Progress and remarks: stderr, at once, without control characters."""
    print(printable(line), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """``text`` without control characters (terminal escapes in logs and names), tabs and line ends kept."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def workspace() -> Workspace:
    """Return the workspace that this folder belongs to.

    Raises:
        WorkspaceError: there is none, or it cannot be used. While its daemon runs that is the daemon's to say: on a full disk
            one must still be able to look, and to stop what fills it.
    """
    from a3r.cli.daemon.lock import is_locked
    from a3r.core.workspace import find_workspace

    found = find_workspace(Path.cwd(), os.environ, usable=False)
    if not is_locked(found.daemon):
        found.require_usable()
    return found


def workspace_or_new() -> Workspace:
    """Return the workspace that this folder belongs to; made here (or where A3R_HOME says) when there is none."""
    from a3r.core.errors import WorkspaceError
    from a3r.core.workspace import FOLDER, HOME_VARIABLE, Workspace, find_workspace

    try:
        return find_workspace(Path.cwd(), os.environ)
    except WorkspaceError as error:
        if not error.details.get("missing"):
            raise
        named = os.environ.get(HOME_VARIABLE, "").strip()
        return Workspace.create(Path(named) if named else Path.cwd() / FOLDER)


@contextmanager
def hub() -> Generator[HubClient]:
    """A client of the workspace's daemon, which is started when it does not run."""
    from a3r.cli.daemon.starting import ensure_daemon

    with ensure_daemon(workspace()) as client:
        yield client


def table(rows: Iterable[Iterable[object]], header: Iterable[str]) -> list[str]:
    """Align columns by their widest cell; None is shown as ``-``, and a cell with several lines in one."""
    shown = [["-" if c is None else " ".join(str(c).splitlines()) for c in row] for row in rows]
    cells = [list(header), *shown]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def fields(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """``name  value`` lines; None and empty values are left out, a value's further lines stand under its first."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0) + 2
    return [
        f"{name if number == 0 else '':<{width}}{line}"
        for name, value in shown
        for number, line in enumerate(str(value).splitlines())
    ]
