"""Type and size of an encoded picture, read from its own bytes: what a request says of them is not believed.

A few dozen bytes are looked at, however large the picture says that it is. Sources: PNG (ISO/IEC 15948), JPEG (ITU-T T.81,
annex B), GIF89a, WebP (RFC 9649).
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Header(NamedTuple):
    """What a picture says of itself."""

    media_type: str
    width: int
    height: int


def read_header(data: bytes) -> Header | None:
    """Return type and size in pixels; None for anything but a whole PNG, JPEG, GIF or WebP of at least one pixel.

    Whole: its last part is there. That what lies between can be decoded is not certain.
    """
    for starts, read in _READERS:
        if data.startswith(starts):
            try:
                found = read(data)
            except (struct.error, IndexError):
                return None
            return found if found is not None and found.width > 0 < found.height else None
    return None


def _png(data: bytes) -> Header | None:
    name, width, height = struct.unpack_from(">4sII", data, 12)
    whole = data.rfind(b"IEND\xaeB`\x82") > 0
    return Header("image/png", width, height) if name == b"IHDR" and whole else None


MOST_SEGMENTS = 4096
"""Of a JPEG, looked at before its frame; real ones have a dozen."""
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG that begin a frame; the three others of that row do not."""


def _jpeg(data: bytes) -> Header | None:
    if data.rfind(b"\xff\xd9") < 0:
        return None
    at = 2
    for _ in range(MOST_SEGMENTS):
        marker = data[at + 1]
        if data[at] != 0xFF:
            break
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Header("image/jpeg", width, height)
        alone = marker == 0x01 or 0xD0 <= marker <= 0xD8
        at += 2 if alone else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _gif(data: bytes) -> Header | None:
    width, height = struct.unpack_from("<HH", data, 6)
    return Header("image/gif", width, height) if data.rfind(b"\x3b") > 12 else None


def _webp(data: bytes) -> Header | None:
    (length,) = struct.unpack_from("<I", data, 4)
    if data[8:12] != b"WEBP" or len(data) < length + 8:
        return None
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Header("image/webp", width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return Header("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        return Header("image/webp", (low_w | high_w << 16) + 1, (low_h | high_h << 16) + 1)
    return None


_READERS = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8\xff", _jpeg),
    (b"GIF87a", _gif),
    (b"GIF89a", _gif),
    (b"RIFF", _webp),
)
