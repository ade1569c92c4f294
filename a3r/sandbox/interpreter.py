"""What a Python interpreter needs to see of the file system: found out by asking it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ASK_S = 60.0
ASK = """
import importlib.util, json, os, sys
spec = importlib.util.find_spec("swarm")
print(json.dumps({
    "version": sys.version.split()[0], "executable": sys.executable, "prefix": sys.prefix,
    "base_prefix": sys.base_prefix, "real": os.path.realpath(sys.executable),
    "path": [p for p in sys.path if p],
    "swarm": [os.path.realpath(p) for p in spec.submodule_search_locations or []] if spec else [],
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """One interpreter of this host."""

    python: str
    version: str
    folders: tuple[Path, ...]
    """Where it, its standard library and its packages lie."""
    has_swarm: bool
    """Whether a client can ``import swarm``."""


class NoInterpreter(Exception):
    """It cannot be run; the text says why."""


@functools.lru_cache(maxsize=64)
def interpreter(python: str = sys.executable, path: str = "") -> Interpreter:
    """Ask ``python``; remembered. ``path``: its PYTHONPATH.

    Raises:
        NoInterpreter: there is none, or it does not answer.
    """
    env = {"PATH": os.defpath}
    if path:
        env["PYTHONPATH"] = path
    try:
        done = subprocess.run(
            [python, "-P", "-c", ASK] if python == sys.executable else [python, "-c", ASK],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=ASK_S, check=False, env=env, cwd="/",
        )  # fmt: skip
        told = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise NoInterpreter(f"{python!r} is no Python that answers: {error}") from error
    named = [Path(told[key]) for key in ("prefix", "base_prefix")]
    named += [Path(told[key]).parent for key in ("executable", "real")]
    named += [Path(entry) for entry in [*told["path"], *told["swarm"]]]
    return Interpreter(python, told["version"], outermost(named), bool(told["swarm"]))


def outermost(paths: list[Path]) -> tuple[Path, ...]:
    """Those that exist and lie in no other one; never the root or the home folder, which would show everything."""
    too_much = {Path("/"), Path.home()}
    there = sorted({p for p in paths if p.exists() and p not in too_much})
    return tuple(p for p in there if not any(other in p.parents for other in there))
