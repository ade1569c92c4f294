"""The moves of a swarm group as programs: they say what to send, are told the answers, and decide. They send nothing themselves.

One program serves the async and the sync group. A program yields a list of messages that may travel at the same time and is
sent their answers in that order; an answer is a value or a ``SwarmError``. A program that is dropped half-way leaves only
what ends by itself on the servers: reservations, promises, deadlines.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from swarm.client.calls import Call
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import SwarmError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """A call to one server."""

    server: str
    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for an episode of one server, as a registered client."""

    server: str
    request: GrantRequest


Move = Generator[Sequence[Send | Ask], list[Any], T]


def named(server: str, error: SwarmError) -> SwarmError:
    """The same error, saying whose it is."""
    details = {**error.details, "server": server}
    return type(error)(f"Server {server!r}: {error.message}", hint=error.hint, **details)


def each(sends: Mapping[str, Call[Any]]) -> Move[dict[str, Any]]:
    """Send one call a server; answers and errors by server."""
    answers = (yield [Send(server, call) for server, call in sends.items()]) if sends else []
    return dict(zip(sends, answers, strict=True))


def all_of(sends: Mapping[str, Call[Any]]) -> Move[dict[str, Any]]:
    """Send one call a server; the answers by server.

    Raises:
        SwarmError: the first that failed, with the server's name.
    """
    answers = yield from each(sends)
    for server, answer in answers.items():
        if isinstance(answer, SwarmError):
            raise named(server, answer) from answer
    return answers
