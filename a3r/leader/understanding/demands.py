"""What code itself reads from a goal in prose: its name and its list of constraints. So neither can get lost or be bent."""

from __future__ import annotations

import re

from a3r.report.escape import visible

_BULLET = re.compile(r"^\s*(?:[•‣◦–*+-]|\d{1,2}[.)])\s+(?P<text>\S.*)$")  # noqa: RUF001 - marks that people use
_HEADING = re.compile(r"^\s*#{1,6}\s+(?P<text>.+?)\s*#*\s*$")
_LABEL = re.compile(
    r"^\s*(?:#+\s*)?\**\s*(?:constraints?|requirements?|conditions?)\s*\**\s*[.:]?\s*\**\s*$",
    re.IGNORECASE,
)
NAME_LENGTH = 60


def constraints_of(prose: str) -> tuple[str, ...]:
    """The items of the list under "Constraints" (or requirements), word for word; empty when there is no such list.

    A line that goes on below its bullet belongs to it; the list ends at the next heading or at a paragraph that is no item.
    """
    lines = prose.splitlines()
    start = next((i for i, line in enumerate(lines) if _LABEL.match(line)), None)
    if start is None:
        return ()
    items: list[str] = []
    gap = False
    for line in lines[start + 1 :]:
        found = _BULLET.match(line)
        if found:
            items.append(_clean(found["text"]))
        elif not line.strip():
            gap = True
            continue
        elif _HEADING.match(line) or gap or not items:
            break
        else:
            items[-1] = f"{items[-1]} {_clean(line)}"
        gap = False
    return tuple(items)


def name_of(prose: str) -> str:
    """The goal's first heading, or its first sentence, cut to a readable length; ``study`` when there are no words."""
    heading = next((m["text"] for line in prose.splitlines() if (m := _HEADING.match(line))), "")
    text = re.sub(r"\(.*?\)", "", _clean(heading or prose)).strip(" .:*")
    first = re.split(r"(?<=[.!?])\s", text)[0].rstrip(" .:*")
    words = first[:NAME_LENGTH].rstrip()
    if len(first) > NAME_LENGTH and " " in words:
        words = words.rsplit(" ", 1)[0]
    return words or "study"


def _clean(text: str) -> str:
    return " ".join(visible(text, keep="\t\n ").split())
