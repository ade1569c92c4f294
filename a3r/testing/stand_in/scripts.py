"""Scripts by name, for a stand-in that runs as a process of its own."""

from __future__ import annotations

import difflib
from importlib import import_module

from a3r.core.errors import NotFound
from a3r.core.llm import ModelRequest
from a3r.testing.stand_in.script import Answer, Script

SCRIPTS: dict[str, str] = {
    "echo": "a3r.testing.stand_in.scripts:echoing",
    "mending": "a3r.testing.stand_in.mending:mending",
    "prose-study": "a3r.testing.stand_in.prose_study:prose_study",
}
"""Name -> ``module:function``; the function takes nothing and returns the script."""


def find_script(name: str) -> Script:
    """The script of this name, or of a ``module:function`` of one's own.

    Raises:
        NotFound: there is none; the nearest is suggested.
    """
    module, _, attribute = SCRIPTS.get(name, name).partition(":")
    try:
        made: Script = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, ValueError) as error:
        near = difflib.get_close_matches(name, SCRIPTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"scripts: {', '.join(SCRIPTS)}"
        raise NotFound(f"there is no script {name!r}", hint=hint) from error
    return made


def echoing() -> Script:
    """Says what it was told last."""

    def script(request: ModelRequest) -> Answer:
        return Answer(request.messages[-1].content if request.messages else "")

    return script
