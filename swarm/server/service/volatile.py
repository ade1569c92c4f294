"""System lines that some CLIs write anew on each request (dates, token counts): left out of matching and rendering.

Such a line would make every turn a new conversation: nothing would match, and every prompt would be trained on alone.
"""

from __future__ import annotations

import re
from typing import Any


class Volatile:
    """The patterns of one configuration; each must match a whole line."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        """Compile them; the configuration has checked that they are regular expressions."""
        self.patterns = patterns
        self._lines = [re.compile(pattern) for pattern in patterns]

    def without(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """Return the messages with the matching lines of system messages left out; None when none matches."""
        changed = False
        kept: list[dict[str, Any]] = []
        for message in messages:
            text = message.get("content")
            if message.get("role") == "system" and isinstance(text, str):
                lines = text.split("\n")
                left = [line for line in lines if not any(p.fullmatch(line) for p in self._lines)]
                if len(left) != len(lines):
                    changed = True
                    kept.append({**message, "content": "\n".join(left)})
                    continue
            kept.append(message)
        return kept if changed else None
