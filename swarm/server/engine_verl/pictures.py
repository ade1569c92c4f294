"""Pictures of requests and rows: decoded alike for sampler and trainer, and put into a row's ids as the model's own tokens.

The front writes one image token a picture. The sampler puts in the others itself; the trainer gets them from here, so that both
see the same context. Knows neither the model nor torch: a ``Read`` says what a picture becomes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from swarm.server.ports import Span, TrainRow

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
"""Nothing else of what PIL can open is tried."""

BLANK = (32, 32)


class UnreadablePicture(ValueError):
    """A picture that cannot be decoded, or that the model's processor does not take."""


class PromptChanged(RuntimeError):
    """The sampler read other tokens than it was sent."""


@dataclass(frozen=True)
class Reading:
    """What one picture becomes."""

    ids: tuple[int, ...]
    """Tokens that stand for it in the model's context, in place of the one that the front wrote."""
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    """Tensors that the model takes beside its ids, by its name for them; the first axis counts pictures or their patches."""


Read = Callable[[bytes], Reading]
"""Raises ``UnreadablePicture``. The same bytes give the same reading."""


def decoded(picture: bytes) -> Any:
    """Return a PIL image in RGB: the first frame, see-through parts on white.

    Raises:
        UnreadablePicture: it is broken, too large for PIL, or of another format than ``FORMATS``.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(picture), formats=FORMATS) as opened:
            opened.load()
            if not opened.has_transparency_data:
                return opened.convert("RGB")
            seen = opened.convert("RGBA")
        ground = Image.new("RGBA", seen.size, "white")
        return Image.alpha_composite(ground, seen).convert("RGB")
    # Decoders raise what they like (SyntaxError, struct.error, EOFError among them).
    except Exception as error:
        msg = f"The picture cannot be decoded: {type(error).__name__}: {error}"
        raise UnreadablePicture(msg) from error


def decoded_all(pictures: Sequence[bytes]) -> list[Any]:
    """Return ``decoded`` of each."""
    return [decoded(picture) for picture in pictures]


def blank() -> bytes:
    """Return a small white picture, encoded."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", BLANK, "white").save(out, "PNG")
    return out.getvalue()


def all_pictured(rows: Sequence[TrainRow], token: int) -> list[TrainRow]:
    """Return the rows, those without a picture with a blank one behind all that trains, which changes nothing before it.

    Ranks gather the vision part of a model together: one whose share had no picture would leave the others waiting for ever.
    """
    empty = blank()
    return [
        row if row.images else msgspec.structs.replace(row, ids=[*row.ids, token], images=[empty])
        for row in rows
    ]


def expanded(row: TrainRow, token: int, readings: Sequence[Reading]) -> TrainRow:
    """Return the row with each image token replaced by its reading's ids; spans move along. A row without any comes back itself.

    Raises:
        ValueError: the row has another number of pictures than of image tokens, or a span holds one.
    """
    places = [at for at, one in enumerate(row.ids) if one == token] if readings else []
    if len(places) != len(readings):
        msg = f"Row {row.key!r} has {len(readings)} pictures for {len(places)} image tokens."
        raise ValueError(msg)
    if not places:
        return row
    ids: list[int] = []
    moved: list[int] = []
    """Old position -> new one."""
    reading = dict(zip(places, readings, strict=True))
    for at, one in enumerate(row.ids):
        moved.append(len(ids))
        ids += reading[at].ids if at in reading else (one,)
    moved.append(len(ids))
    for span in row.spans:
        if any(span.start <= at < span.end for at in places):
            msg = f"Row {row.key!r} trains an image token: {span!r}."
            raise ValueError(msg)
    spans = [Span(moved[s.start], moved[s.end - 1] + 1, s.temperature) for s in row.spans]
    return msgspec.structs.replace(row, ids=ids, spans=spans)


def is_expanded(sent: Sequence[int], found: Sequence[int], token: int) -> bool:
    """Whether ``found`` is ``sent`` with one or more tokens in place of each image token."""
    parts: list[list[int]] = [[]]
    for one in sent:
        if one == token:
            parts.append([])
        else:
            parts[-1].append(one)
    first, *middle = parts
    if len(parts) == 1 or list(found[: len(first)]) != first:
        return list(found) == first
    last, at = middle.pop(), len(first)
    for part in middle:
        at = _place(part, found, at + 1)
        if at < 0:
            return False
        at += len(part)
    return len(found) - len(last) > at and list(found[len(found) - len(last) :]) == last


def _place(part: list[int], found: Sequence[int], begin: int) -> int:
    """Where ``part`` is first found from ``begin`` on; -1 when nowhere."""
    for at in range(begin, len(found) - len(part) + 1):
        if not part or (found[at] == part[0] and list(found[at : at + len(part)]) == part):
            return at
    return -1
