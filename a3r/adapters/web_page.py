"""A public page as plain text, for whoever must follow a tutorial: one GET, bounded in time and size, nothing executed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from a3r.core.errors import A3RError

SCHEMES = ("https://", "http://")
TIMEOUT_S = 30.0
MOST_BYTES = 2 * 2**20
"""Of a page; a longer one is cut."""
TEXT_TYPES = (
    "text/",
    "application/json",
    "application/xml",
    "application/xhtml",
    "application/x-yaml",
)
_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BREAKS = frozenset(
    {"p", "br", "div", "li", "tr", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "section", "table"}
)


def read_page(address: str, timeout_s: float = TIMEOUT_S) -> str:
    """The page's text; of HTML what a reader sees, of other text types all of it, cut at ``MOST_BYTES``.

    Raises:
        A3RError: not http(s), no answer, an error status, or no text.
    """
    if not address.startswith(SCHEMES):
        raise A3RError(f"{address!r} is no http address", hint="Only http(s) pages are read.")
    try:
        kind, charset, body = _got(address, timeout_s)
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise A3RError(
            f"{address} can not be read: {error}",
            hint="Save the page to a file and name that under `reference`.",
        ) from error
    if not kind.startswith(TEXT_TYPES):
        raise A3RError(f"{address} is no text but {kind}", hint="Name a page of text.")
    try:
        text = body.decode(charset, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    return _seen(text) if "html" in kind else text


def _got(address: str, timeout_s: float) -> tuple[str, str, bytes]:
    """(content type, character set, bytes)."""
    headers = {"User-Agent": "a3r", "Accept": "text/*, */*;q=0.1"}
    request = Request(address, headers=headers)  # noqa: S310 - the scheme was looked at
    # A redirect is followed to http, https and ftp only: urllib's own rule.
    with urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - likewise
        charset = answer.headers.get_content_charset() or "utf-8"
        return answer.headers.get_content_type(), charset, answer.read(MOST_BYTES)


def _seen(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    parser.close()
    return re.sub(r"\n{3,}", "\n\n", "".join(parser.parts)).strip()


class _Text(HTMLParser):
    """Collects what a reader sees; code blocks keep their lines."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in _SILENT
        self._pre += tag == "pre"
        if tag in _BREAKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._silent = max(0, self._silent - (tag in _SILENT))
        self._pre = max(0, self._pre - (tag == "pre"))
        if tag in _BREAKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))
