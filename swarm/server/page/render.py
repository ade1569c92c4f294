"""Writes an episode's page as one HTML document without script and without anything from elsewhere.

All text is escaped by jinja2 and stripped of what is unprintable. ``CSP`` allows the page's own style sheet (by its hash) and
nothing else, so that even a flaw in the escaping could neither run nor fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from swarm.plain import plain
from swarm.protocol.records import EpisodeTrace
from swarm.server.page.tokens import REASONS
from swarm.server.page.view import TOKENS_A_FOLD, Choice, Part, page_view
from swarm.server.redaction import Redactor
from swarm.server.tracking.tokenizer import ChatTokenizer

FOLDER = Path(__file__).parent
STYLE = (FOLDER / "style.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CSP = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""Of the document itself; the server adds ``frame-ancestors 'none'``, which only a header can say."""

Link = Callable[[int, Part, int], str]
"""(call index, part, first token) -> address of the page that shows them."""


def render_page(
    trace: EpisodeTrace,
    tokenizer: ChatTokenizer | None,
    choice: Choice,
    link: Link | None = None,
    redactor: Redactor | None = None,
) -> str:
    """Return the document.

    Args:
        trace: With its calls.
        tokenizer: Of the model that sampled them; None shows ids instead of texts.
        choice: Which tokens; a ``call`` that does not exist shows none.
        link: Makes the addresses of further pages; None for a file, which has no further pages.
        redactor: Hides tokens that hold a part of a secret.
    """
    view = page_view(trace, tokenizer, choice, redactor)
    return _template().render(
        view=view, trace=trace, link=link, csp=CSP, style=STYLE, fold_size=TOKENS_A_FOLD
    )


@cache
def _template() -> Template:
    env = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"plain": _plain, "number": _number, "when": _when, "reason": _reason}
    return env.get_template("episode.html.j2")


def _plain(value: object) -> str:
    return plain(str(value), 2000)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _when(unix_s: float | None) -> str:
    """UTC to the second; a time that no calendar has is shown as a number."""
    if unix_s is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{unix_s:g}"


def _reason(text: str) -> str:
    """A drop's code name in words, or the text itself."""
    return next((words for code, words in REASONS.items() if words and code.value == text), text)
