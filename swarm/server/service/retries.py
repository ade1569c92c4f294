"""SDKs repeat a request whose answer they did not get. Such a repeat is answered with what was sampled then, never sampled again.

A retry is known by its mark (``x-stainless-retry-count`` above 0) and by an equal request before it; equal bodies without the
mark are two calls, because an agent may well ask the same thing twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakKeyDictionary

from swarm.server.service.calls import Answer, ChatCall
from swarm.server.service.episodes import Episode

KEPT = 32
"""Answers remembered of one episode; a retry follows within seconds."""


class Retries:
    """The latest answers of each open episode, by digest of the request."""

    def __init__(self) -> None:
        self._by_episode: WeakKeyDictionary[Episode, OrderedDict[str, Answer]] = WeakKeyDictionary()
        self._running: dict[tuple[str, str], asyncio.Future[Answer]] = {}

    def earlier(self, episode: Episode, call: ChatCall) -> Answer | None:
        """Return the answer that ``call`` repeats the request of; None when it is no retry or nothing is known of it."""
        if not call.retry_count or not call.retry_key:
            return None
        return self._by_episode.get(episode, OrderedDict()).get(_key(call))

    def running(self, episode: Episode, call: ChatCall) -> asyncio.Future[Answer] | None:
        """Return the first attempt that is still being answered, when ``call`` is a retry of it."""
        if not call.retry_count or not call.retry_key:
            return None
        return self._running.get((episode.episode_id, _key(call)))

    def begin(self, episode: Episode, call: ChatCall) -> asyncio.Future[Answer] | None:
        """Note that ``call`` is being answered; hand the future to ``end``. None when it cannot be retried."""
        if not call.retry_key:
            return None
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._running[episode.episode_id, _key(call)] = future
        return future

    def end(
        self,
        episode: Episode,
        call: ChatCall,
        future: asyncio.Future[Answer] | None,
        answer: Answer | None,
    ) -> None:
        """Remember ``answer``; None = there is none, and whoever joined samples for itself."""
        if future is None:
            return
        place = (episode.episode_id, _key(call))
        if self._running.get(place) is future:
            del self._running[place]
        if answer is None:
            future.cancel()
            return
        future.set_result(answer)
        known = self._by_episode.setdefault(episode, OrderedDict())
        known[_key(call)] = answer
        while len(known) > KEPT:
            known.popitem(last=False)


def _key(call: ChatCall) -> str:
    return f"{call.agent}/{call.retry_key}"
