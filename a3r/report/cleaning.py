"""Free text made fit for records: nothing hidden, no path of a machine, no secret that one can recognise, bounded length."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from a3r.core.hashing import canonical_json
from a3r.report.escape import visible

LONGEST = 4000
"""Characters of one text or one nested value in free-form data; longer ones are cut and say so."""

_ANY_HOST = (
    (re.compile(r"(?<![\w.~>/-])(?:/(?:home|Users)/[^/\s'\":,;()]+|/root(?=[/\s'\":,;)]|$))"), "~"),
    (re.compile(r"(?<![\w.~>/-])(?:/private)?/(?:var/)?tmp(?=[/\s'\":,;)]|$)"), "<tmp>"),
    (re.compile(r"(?<![\w.~>/-])(?:/private)?/var/folders/\w+/\w+/T\b"), "<tmp>"),
)
"""Homes and scratch folders of whichever host a text came from. Says nothing of this process's environment: ``verify``, started
elsewhere, must clean the same text alike."""


class Cleaner:
    """Free text without hidden characters and without paths of the machines that it came from, of bounded length."""

    def __init__(self, project: Path) -> None:
        places = ((str(project), "<project>"), (str(Path.home()), "~"))
        # A sibling whose name only begins alike is another folder.
        self._places = [
            (re.compile(re.escape(path) + r"(?![\w-])"), name)
            for path, name in places
            if len(path) > 1
        ]

    def text(self, value: str, longest: int = LONGEST) -> str:
        """The text, cut at ``longest`` characters."""
        out = visible(value.encode("utf-8", "replace").decode(), keep="\n\t")
        for pattern, name in (*self._places, *_ANY_HOST):
            out = pattern.sub(name, out)
        return out if len(out) <= longest else f"{out[:longest]} … ({len(out)} characters)"

    def data(self, value: Any) -> Any:
        """JSON whose texts are clean; a nested value that is too large is left out by name."""
        kind: object = value
        if isinstance(kind, str):
            return self.text(kind)
        if isinstance(kind, dict):
            return {self.text(str(k)): self._bounded(v) for k, v in value.items()}
        if isinstance(kind, list | tuple):
            return [self.data(v) for v in value]
        if isinstance(kind, float) and not math.isfinite(kind):
            return repr(kind)
        return value

    def _bounded(self, value: Any) -> Any:
        cleaned: Any = self.data(value)
        size = len(canonical_json(cleaned)) if isinstance(value, dict | list | tuple) else 0
        if size > LONGEST:
            return f"left out: {size} characters of JSON"
        return cleaned
