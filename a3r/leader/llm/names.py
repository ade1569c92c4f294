"""The name of a model as a provider gave it: told on only when it is a name."""

from __future__ import annotations

import re

UNNAMED = "a language model"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,99}")


def plain_name(name: str) -> str:
    """The name, or ``a language model`` when a provider answers with something else than a name (a sentence, say)."""
    return name if _NAME.fullmatch(name) else UNNAMED
