"""What was answered before, by response id: the items that ``previous_response_id`` continues. In memory, with the episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from swarm.protocol.errors import NotFoundError, RequestError
from swarm.server.service.episodes import Episode


@dataclass(frozen=True, slots=True)
class Stored:
    """One response with the items that led to it."""

    response: dict[str, Any]
    inputs: list[Any]
    """Of its own request."""
    before: list[Any]
    """Items of the responses that it continued, oldest first."""

    @property
    def items(self) -> list[Any]:
        """Everything up to and with its output."""
        return [*self.before, *self.inputs, *self.response["output"]]


class ResponseStore:
    """Responses of open episodes; forgotten with the episode, which does not survive a restart of the server either."""

    def __init__(self) -> None:
        self._by_episode: WeakKeyDictionary[Episode, dict[str, Stored]] = WeakKeyDictionary()

    def keep(
        self, episode: Episode, response: dict[str, Any], inputs: list[Any], before: list[Any]
    ) -> None:
        """Remember a response."""
        self._by_episode.setdefault(episode, {})[response["id"]] = Stored(response, inputs, before)

    def history(self, episode: Episode, response_id: str | None) -> list[Any]:
        """Return the items that a request continues; none without an id.

        Raises:
            RequestError: the episode has no such response (any more); code ``previous_response_not_found``.
        """
        if response_id is None:
            return []
        stored = self._by_episode.get(episode, {}).get(response_id)
        if stored is None:
            raise PreviousResponseNotFound(
                f"Previous response with id {response_id!r} not found.",
                hint="Responses belong to the episode that made them and need store=true; else send all items in 'input'.",
                parameter="previous_response_id",
            )
        return stored.items

    def get(self, episode: Episode, response_id: str) -> Stored:
        """Return a stored response.

        Raises:
            NotFoundError: the episode has no such response.
        """
        stored = self._by_episode.get(episode, {}).get(response_id)
        if stored is None:
            raise NotFoundError(
                f"No response {response_id!r} in this episode.",
                hint="Responses live as long as their episode, and only with store=true.",
            )
        return stored

    def delete(self, episode: Episode, response_id: str) -> None:
        """Forget a response; ``NotFoundError`` when there is none."""
        self.get(episode, response_id)
        del self._by_episode[episode][response_id]


class PreviousResponseNotFound(RequestError):
    """``previous_response_id`` names nothing that this episode has."""

    code = "previous_response_not_found"
