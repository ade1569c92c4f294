"""Foreign text made safe to show: nothing in it can move a cursor, change a colour, hide or reorder what is beside it.

For terminals and pages alike. Escaping of markup is the business of whoever writes markup. Standard library only:
everything below ``swarm`` may import this.
"""

from __future__ import annotations


def plain(text: str, limit: int | None = None, *, newlines: bool = False) -> str:
    r"""Return ``text`` with everything unprintable spelled out (``\x1b``, ``\u202e``), cut to ``limit`` characters.

    Unprintable is what ``str.isprintable`` says: control and format characters (bidirectional overrides, zero-width ones),
    surrogates, unassigned code points, and spaces other than the plain one. ``newlines`` keeps line ends and tabs.
    A text that was cut ends with an ellipsis. The empty text stays empty.
    """
    cut = limit is not None and len(text) > limit
    if cut:
        text = text[: max(0, (limit or 0) - 1)]
    if not text.isprintable():
        kept = "\n\t" if newlines else ""
        text = "".join(c if c.isprintable() or c in kept else _spelled(c) for c in text)
    return f"{text}…" if cut else text


def _spelled(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named is not None:
        return named
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
