"""One episode of a run, from its grant to its end: call the agent, read its reward, finish or abort, say how it went."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Literal

from swarm.client.agents import Agent, call_agent, is_gone, read_score
from swarm.client.base import ABORT_DEADLINE_S
from swarm.client.episode import AsyncEpisode, Episode
from swarm.client.group_episode import AsyncGroupEpisode, GroupEpisode, GroupEpisodeBase
from swarm.client.tasks import Task
from swarm.protocol.episodes import FinishReply
from swarm.protocol.errors import (
    EpisodeGone,
    JournalFailed,
    NotFoundError,
    ServerUnreachable,
    SwarmError,
)
from swarm.protocol.states import EpisodeState

logger = logging.getLogger(__name__)

AnyEpisode = AsyncEpisode | Episode | AsyncGroupEpisode | GroupEpisode


@dataclass(frozen=True, slots=True)
class Played:
    """How one episode went."""

    how: Literal["finished", "rejected", "aborted", "failed", "lost"]
    """See ``RunSummary``."""
    reward: float | None = None
    """As the agent returned it; None when there is none, or the agent ended the episode itself."""
    error: Exception | None = None
    """Why it failed or was lost."""


async def play(agent: Agent, episode: AnyEpisode, task: Task, timeout_s: float) -> Played:
    """Run ``agent`` on one granted episode and end it. Raises nothing, except when cancelled (the episode is aborted)."""
    try:
        return await _play(agent, episode, task, timeout_s)
    except asyncio.CancelledError:
        await give_up(episode)
        raise


async def give_up(episode: AnyEpisode) -> None:
    """Abort an episode that nobody will end; a server that is away will find its deadline passed."""
    if episode.outcome is None:
        with contextlib.suppress(SwarmError):
            await _abort(episode, "the client stopped")


async def _play(agent: Agent, episode: AnyEpisode, task: Task, timeout_s: float) -> Played:
    reward = None
    try:
        returned = await call_agent(agent, episode, task, timeout_s)
        if episode.outcome is None:
            reward, metrics = read_score(returned)
            await _finish(episode, reward, metrics)
    except Exception as error:  # noqa: BLE001 - an agent may raise anything; it costs one episode
        return Played(await _how_it_failed(episode, error), error=error)
    outcome = episode.outcome
    assert outcome is not None
    if outcome.state is EpisodeState.FINISHED:
        return Played("finished" if outcome.accepted else "rejected", reward)
    # Ended before the finish came: by the agent itself, or by the server when the step went on.
    return Played("aborted" if reward is None else "rejected", reward)


async def _how_it_failed(episode: AnyEpisode, error: Exception) -> Literal["failed", "lost"]:
    """Abort. Lost = the episode or the server went away under the agent; anything else is the agent's own failure."""
    try:
        reply = await _abort(episode, f"{type(error).__name__}: {error}")
    except (ServerUnreachable, EpisodeGone, NotFoundError, JournalFailed):
        return "lost"
    except SwarmError as second:
        logger.warning("could not abort %r: %s", episode, second.message)
        return "failed"
    if isinstance(episode, GroupEpisodeBase) and episode.excuses(error):
        return "lost"
    # An episode that passed a deadline is the agent's doing, and would otherwise repeat for ever unseen.
    return "lost" if is_gone(error) and reply.state is not EpisodeState.EXPIRED else "failed"


async def _finish(episode: AnyEpisode, reward: float, metrics: dict[str, float]) -> FinishReply:
    if isinstance(episode, (AsyncEpisode, AsyncGroupEpisode)):
        return await episode.finish(reward, metrics)
    return await asyncio.to_thread(episode.finish, reward, metrics)


async def _abort(episode: AnyEpisode, reason: str) -> FinishReply:
    if isinstance(episode, (AsyncEpisode, AsyncGroupEpisode)):
        return await episode.abort(reason, deadline_s=ABORT_DEADLINE_S)
    return await asyncio.to_thread(episode.abort, reason, deadline_s=ABORT_DEADLINE_S)
