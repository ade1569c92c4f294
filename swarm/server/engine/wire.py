"""Frames between the front and the engine's child: a 4-byte big-endian length, then a msgpack list of messages.

The messages of ``swarm.server.ports`` plus the few that only the two halves of one engine exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from swarm.protocol.errors import (
    CheckpointFailed,
    ConfigError,
    EngineFailed,
    StateError,
    SwarmError,
)
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult

HEADER_BYTES = 4


class Boot(msgspec.Struct, tag="boot"):
    """First message to a child: the TrainConfig as JSON, a checkpoint folder or None, and how often to beat."""

    config_json: str
    checkpoint: str | None = None
    beat_s: float = 1.0


class Abort(msgspec.Struct, tag="abort"):
    """Stop one generation."""

    request_id: str


class Save(msgspec.Struct, tag="save"):
    """Write a checkpoint."""

    folder: str


class Close(msgspec.Struct, tag="close"):
    """End the process."""


class Saved(msgspec.Struct, tag="saved"):
    """Answer to Save."""

    info: dict[str, Any]


class Beat(msgspec.Struct, tag="beat"):
    """The child is alive and gets on; sent when it has had nothing else to say for ``Boot.beat_s``."""


class Failure(msgspec.Struct, tag="failure"):
    """A control message failed; the child lives on unless it was Boot. ``kind`` is the error's class name."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe any exception; only the swarm's own errors carry a hint."""
        if isinstance(error, SwarmError):
            return cls(type(error).__name__, error.message, error.hint)
        return cls(
            "EngineFailed",
            f"{type(error).__name__}: {error}",
            "See the server's log for the traceback.",
        )

    def error(self) -> SwarmError:
        """Rebuild the error for the caller; an unknown kind is an EngineFailed."""
        known: tuple[type[SwarmError], ...] = (CheckpointFailed, ConfigError, StateError)
        kinds = {cls.__name__: cls for cls in known}
        return kinds.get(self.kind, EngineFailed)(self.message, hint=self.hint)


ToChild = Boot | GenerateRequest | Abort | TrainBatch | Save | Close
ToFront = EngineInfo | Chunk | TrainResult | Saved | Failure | Beat

_encoder = msgspec.msgpack.Encoder()
_for_child = msgspec.msgpack.Decoder(list[ToChild])
_for_front = msgspec.msgpack.Decoder(list[ToFront])


def pack(messages: Sequence[ToChild | ToFront]) -> bytes:
    """One frame with all the messages, in order."""
    body = _encoder.encode(messages)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class FrameBuffer:
    """Cuts a byte stream into the bodies of whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; returns the bodies that are now complete, in order."""
        self._bytes += data
        bodies: list[bytes] = []
        start = 0
        while len(self._bytes) - start >= HEADER_BYTES:
            end = (
                start
                + HEADER_BYTES
                + int.from_bytes(self._bytes[start : start + HEADER_BYTES], "big")
            )
            if len(self._bytes) < end:
                break
            bodies.append(bytes(self._bytes[start + HEADER_BYTES : end]))
            start = end
        del self._bytes[:start]
        return bodies


def read_for_child(body: bytes) -> list[ToChild]:
    """Decode a frame's body in the child."""
    return _for_child.decode(body)


def read_for_front(body: bytes) -> list[ToFront]:
    """Decode a frame's body in the front."""
    return _for_front.decode(body)
