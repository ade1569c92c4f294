"""Pictures on their way into one request: taken out of data URLs or base64, checked, and replaced by a part that names them."""

from __future__ import annotations

import binascii
import hashlib
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from swarm.protocol.errors import RequestError
from swarm.server.pictures.headers import read_header
from swarm.server.pictures.parts import KIND

MOST = 64
"""Pictures of a request, its whole history included."""
MOST_BYTES = 10 * 1024 * 1024
"""Of one picture, encoded."""
MOST_PIXELS = 1 << 25
"""Of one picture: 33 million, 100 MB decoded. More is refused before anybody decodes it."""
MOST_PIXELS_TOGETHER = 1 << 27
"""Of all pictures of a request, those that come again counted once."""
OWN_URLS = "This server fetches nothing: send the picture itself, as data:image/png;base64,..."
FORMATS = "Send a whole PNG, JPEG, WebP or GIF file, base64 encoded."


class Picture:
    """One encoded picture, there once for all that hold it."""

    __slots__ = ("__weakref__", "data", "height", "media_type", "sha256", "width")

    def __init__(self, data: bytes, sha256: str, media_type: str, width: int, height: int) -> None:
        self.data, self.sha256, self.media_type = data, sha256, media_type
        self.width, self.height = width, height

    def part(self) -> dict[str, Any]:
        """Return what stands for it in a message."""
        return {
            "type": KIND,
            "sha256": self.sha256,
            "media_type": self.media_type,
            "bytes": len(self.data),
            "width": self.width,
            "height": self.height,
        }


class Album:
    """The pictures that anybody holds now, by digest: an agent sends those of its history on each turn, a group the same ones."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Picture] = WeakValueDictionary()

    def of(self, data: bytes, where: str) -> Picture:
        """Return the picture of ``data``.

        Raises:
            RequestError: it is no whole picture of a known type, or has too many pixels.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        known = self._known.get(sha256)
        if known is not None:
            return known
        header = read_header(data)
        if header is None:
            _refuse(where, f"is no picture that can be read ({len(data)} bytes)", FORMATS)
        if header.width * header.height > MOST_PIXELS:
            _refuse(
                where,
                f"has {header.width} x {header.height} pixels; at most {MOST_PIXELS} are read",
                "Scale it down; the model sees far fewer.",
            )
        picture = Picture(data, sha256, *header)
        self._known[sha256] = picture
        return picture


class Intake:
    """The pictures of one request."""

    def __init__(self, album: Album) -> None:
        self._album = album
        self._count = self._pixels = 0
        self.found: dict[str, Picture] = {}
        """By digest."""
        self.unknown: list[str] = []
        """Keys beside the pictures that say how to look at them: tolerated, and listed in the trace."""

    def url(self, url: object, where: str) -> dict[str, Any]:
        """Return the part for a ``data:`` URL.

        Raises:
            RequestError: another URL, or what ``base64`` raises.
        """
        if not isinstance(url, str) or url[:5].lower() != "data:":
            _refuse(where, "is not a data: URL", OWN_URLS)
        head, comma, encoded = url.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            _refuse(where, "is a data: URL without base64", OWN_URLS)
        return self.base64(encoded, where)

    def base64(self, encoded: object, where: str) -> dict[str, Any]:
        """Return the part for a picture in base64 (line breaks are let through).

        Raises:
            RequestError: no base64, no picture, too large, or too many.
        """
        if not isinstance(encoded, str):
            _refuse(where, "is not base64 text", FORMATS)
        if len(encoded) > MOST_BYTES * 3 // 2:
            _refuse(where, f"is larger than {MOST_BYTES} bytes", "Scale the picture down.")
        try:
            plain = "".join(encoded.split()) if "\n" in encoded else encoded
            data = binascii.a2b_base64(plain, strict_mode=True)
        except ValueError:
            _refuse(where, "is not base64", FORMATS)
        if len(data) > MOST_BYTES:
            _refuse(where, f"is larger than {MOST_BYTES} bytes", "Scale the picture down.")
        picture = self._album.of(data, where)
        self._add(picture, where)
        return picture.part()

    def _add(self, picture: Picture, where: str) -> None:
        self._count += 1
        if self._count > MOST:
            _refuse(
                where,
                f"is picture {self._count} of the request; at most {MOST} are read",
                "Leave out the pictures of earlier turns.",
            )
        if picture.sha256 not in self.found:
            self.found[picture.sha256] = picture
            self._pixels += picture.width * picture.height
        if self._pixels > MOST_PIXELS_TOGETHER:
            _refuse(
                where,
                f"brings the request to {self._pixels} pixels; at most {MOST_PIXELS_TOGETHER} are read",
                "Scale the pictures down, or send fewer.",
            )


def _refuse(where: str, why: str, hint: str) -> NoReturn:
    raise RequestError(f"{where} {why}.", hint=hint, parameter=where)
