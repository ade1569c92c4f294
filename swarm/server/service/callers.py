"""Who makes a call: the open episode that a key is for, and the agent in it."""

from __future__ import annotations

import contextlib

from swarm.protocol.errors import EpisodeGone, NotFoundError
from swarm.server.service.core import Core
from swarm.server.service.inference import Caller


def caller_of(core: Core, api_key: str) -> Caller:
    """Return the open episode that a key is for, and the agent that asks.

    Raises:
        AuthError: Not a key of this server, or expired.
        EpisodeGone: Its episode ended or did not survive a restart.
    """
    episode_id, agent = core.keys.verify(api_key, core.clock.time())
    episode = core.book.get(episode_id)
    if episode is not None and episode.is_open:
        return Caller(episode, agent)
    why = episode.why_over() if episode else ""
    if not why:
        with contextlib.suppress(NotFoundError):
            record = core.journal.episode(episode_id, calls=False)
            why = record.reason or record.state.value
    raise EpisodeGone(
        f"Episode {episode_id!r} is over: {why or 'unknown'}.",
        hint="Ask for a new episode.",
        episode_id=episode_id,
    )
