"""Calls of the far end: the program goes over stdin, so nothing has to be installed there but Python."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from a3r.adapters.ssh import Done, Ssh
from a3r.adapters.ssh_errors import last_line
from a3r.core.errors import HostError
from a3r.hosts import far_end

Json = dict[str, Any]

PYTHONS = ("python3", "python3.13", "python3.12", "python3.11")
NO_PYTHON = 97
_READ = "import sys;f=sys.stdin.buffer;exec(f.read(int(f.readline())))"
_CHOOSE = (
    'for p in "$@"; do if "$p" -c "import sys;sys.exit(sys.version_info<(3,11))" >/dev/null 2>&1; '
    f'then exec "$p" -c "{_READ}"; fi; done; exit {NO_PYTHON}'
)


def command(python: str = "") -> str:
    """The remote command: the first Python from 3.11 on (or ``python``), which reads its program from stdin.

    Any login shell understands it: plain words and single quotes only.
    """
    candidates = [python] if python else PYTHONS
    return f"sh -c '{_CHOOSE}' a3r {' '.join(shlex.quote(p) for p in candidates)}"


def program(action: str, spec: Json) -> bytes:
    """What goes to stdin: the length in a line, then the far end and its order. Stdin stays open for what follows."""
    text = f"{_source()}\nmain({action!r}, __import__('json').loads({json.dumps(spec)!r}))\n"
    body = text.encode()
    return b"%d\n%b" % (len(body), body)


def ask(ssh: Ssh, action: str, spec: Json, *, python: str = "", timeout_s: float = 60.0) -> Json:
    """Let the far end do one thing; returns its answer.

    Raises:
        HostError: no connection, no usable Python there, or it refused (in its own words).
    """
    done = ssh.run(command(python), program(action, spec), timeout_s=timeout_s)
    if done.code == NO_PYTHON:
        raise _no_python(ssh.address, python)
    answer = next(answers(done.out.splitlines()), None)
    if answer is None:
        raise _silent(ssh.address, done)
    if not answer.get("ok"):
        raise HostError(
            f"{ssh.address}: {answer.get('error', 'it failed without a reason')}",
            hint=str(answer.get("hint", "")),
            kind="far_end",
        )
    return answer


def answers(lines: Iterable[bytes]) -> Iterator[Json]:
    """The answers among lines of stdout; greetings of a shell are skipped."""
    mark = far_end.MARK.encode()
    for line in lines:
        if line.startswith(mark):
            try:
                found: Any = json.loads(line[len(mark) :])
            except ValueError:
                continue
            if isinstance(found, dict):
                yield cast("Json", found)


def _no_python(address: str, python: str) -> HostError:
    which = f"{python!r} is none" if python else f"none of {', '.join(PYTHONS)} is one"
    return HostError(
        f"{address!r} has no Python from 3.11 on that ssh finds: {which}.",
        hint="Name one by its whole path: --python (conda's, uv's and pyenv's are not on the path of ssh).",
        kind="no_python",
    )


def _silent(address: str, done: Done) -> HostError:
    said = last_line(done.err) or last_line(done.out.decode("utf-8", "replace"))
    return HostError(
        f"{address!r} gave no answer (exit code {done.code}): {said or 'and no reason'}",
        hint="Does its login shell run plain commands? Try: ssh HOST sh -c true",
        kind="silent",
    )


@cache
def _source() -> str:
    return Path(far_end.__file__).read_text("utf-8")
