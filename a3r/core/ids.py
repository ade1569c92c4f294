"""Names for new things: short, lower case, safe as file, tmux window and URL segment (Crockford base32: no i, l, o, u)."""

from __future__ import annotations

import re
import secrets
import unicodedata

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
TIME_DIGITS = 7
"""35 bits of Unix seconds: sorts until the year 3058."""
RANDOM_DIGITS = 6
SUFFIX_DIGITS = 8
MAX_SLUG = 40


def new_id(prefix: str, at: float) -> str:
    """``<prefix>-<7 digits of time><6 random digits>``: ids of one prefix sort by the second they were made in."""
    return f"{prefix}-{base32(int(at), TIME_DIGITS)}{random_base32(RANDOM_DIGITS)}"


def new_campaign_id(name: str) -> str:
    """``<slug of the name>-<8 random digits>``."""
    return f"{slug(name)}-{random_base32(SUFFIX_DIGITS)}"


def new_nonce() -> str:
    """128 random bits in hex: marks every process of one attempt."""
    return secrets.token_hex(16)


def new_token() -> str:
    """256 random bits, URL-safe: a bearer token."""
    return secrets.token_urlsafe(32)


def slug(name: str) -> str:
    """Lower-case ASCII words joined by ``-``, at most 40 characters; ``campaign`` when nothing is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_SLUG].rstrip("-") or "campaign"


def random_base32(digits: int) -> str:
    """``digits`` random characters of the alphabet (5 bits each)."""
    return "".join(secrets.choice(ALPHABET) for _ in range(digits))


def base32(number: int, digits: int) -> str:
    """The number in base 32, zero-padded; its higher bits are cut off when it does not fit."""
    return "".join(ALPHABET[(number >> (5 * i)) & 31] for i in reversed(range(digits)))
