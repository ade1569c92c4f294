"""The process that runs a sealed evaluator's code: ``python scoring_host.py FOLDER``, one JSON line in, one JSON line out.

Standard library only, and nothing of a3r: it is started with an interpreter of its own, without secrets in its environment.
``{"do": "items", "count", "seed"}`` answers ``{"ok": [...]}``; ``{"do": "score", "item", "trace"}`` answers ``{"ok": 0.5}``;
whatever goes wrong answers ``{"error": "..."}``, and the process goes on.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

MEMORY_BYTES = 4 * 2**30
FILE_BYTES = 64 * 2**20
OPEN_FILES = 64


def main() -> None:
    """Load ``evaluation.py`` and answer until stdin ends."""
    folder = Path(sys.argv[1])
    # What the evaluation prints must not stand between our lines.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    limit()
    module: ModuleType | None = None
    for line in sys.stdin:
        try:
            if module is None:
                module = load(folder)
            answer = {"ok": answer_to(module, json.loads(line))}
            text = json.dumps(answer, allow_nan=False)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: the reason must reach the evaluator
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]})
        answers.write(text + "\n")
        answers.flush()


def limit() -> None:
    """Bound memory, file sizes and open files, where the platform knows how."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def load(folder: Path) -> ModuleType:
    """Import ``evaluation.py``; modules beside it may be imported by it."""
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("evaluation", folder / "evaluation.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("evaluation.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["evaluation"] = module
    os.chdir(folder)
    spec.loader.exec_module(module)
    return module


def answer_to(module: ModuleType, request: dict[str, Any]) -> Any:
    """Call the function that is asked for."""
    if request["do"] == "items":
        return list(module.items(request["count"], request["seed"]))
    return float(module.score(request["item"], request["trace"]))


if __name__ == "__main__":
    main()
