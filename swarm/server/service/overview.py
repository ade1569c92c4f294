"""``GET /swarm/overview``: everything that a person looks at while a run goes on, from memory only."""

from __future__ import annotations

import heapq
import math
from itertools import islice

from swarm.protocol.messages import Status
from swarm.protocol.overview import GroupView, Overview, RunningEpisode
from swarm.protocol.states import EpisodeKind
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Group
from swarm.server.service.progress import Votes, progress
from swarm.server.service.snapshots import client_infos, pool_snapshot

MOST_ROWS = 200
"""Episodes and groups that one answer lists; their totals are told besides."""


def overview(core: Core, status: Status, votes: Votes, *, held: int, evals: bool) -> Overview:
    """Return the whole view. Without ``evals`` evaluation episodes, and errors about them, are left out.

    Costs nothing that grows with the run: no journal, at most ``MOST_ROWS`` episodes and groups.
    """
    now = core.clock.monotonic()
    kind = None if evals else EpisodeKind.TRAIN
    running = core.book.open(kind)
    longest_idle = heapq.nlargest(MOST_ROWS, running, key=lambda episode: idle_s(episode, now))
    towards = progress(core.pool, core.lifecycle.state, votes)
    return Overview(
        status=status,
        policy=core.pool.batch.policy.value,
        progress=towards.share,
        progress_text=towards.text,
        pool=pool_snapshot(core),
        running=[_running(episode, now) for episode in longest_idle],
        running_total=len(running),
        groups=[_group(group) for group in islice(core.pool.groups.values(), MOST_ROWS)],
        clients=client_infos(core),
        divergences=_divergences(core),
        errors=core.recent.newest(evals=evals),
        tokens_per_s=core.traffic.per_second(),
        calls_in_flight=core.in_flight,
        calls_held=held,
        step_age_s=max(0.0, now - core.step_opened),
    )


def _divergences(core: Core) -> int:
    still_open = core.book.open(EpisodeKind.TRAIN)
    return core.ledger.marks.divergences + sum(episode.tree.divergences for episode in still_open)


def idle_s(episode: Episode, now: float) -> float:
    """Return the seconds since the last activity; 0 while a call is pending."""
    return 0.0 if episode.pending else max(0.0, now - episode.last_active)


def _running(episode: Episode, now: float) -> RunningEpisode:
    idle = idle_s(episode, now)
    return RunningEpisode(
        episode_id=episode.episode_id,
        kind=episode.kind,
        client_id=episode.client_id,
        task_set=episode.task_set,
        task_id=episode.task_id,
        group_id=episode.group_id,
        repeat_index=episode.repeat_index,
        calls=len(episode.calls),
        pending_calls=len(episode.pending),
        age_s=max(0.0, now - episode.started),
        idle_s=idle,
        idle_left_s=_left_s(episode, now),
        prepared=episode.prepared,
    )


def _left_s(episode: Episode, now: float) -> float | None:
    """Return the seconds until it ends by itself if nothing happens: of idleness, or of the promise of a prepared finish."""
    if episode.prepared:
        return max(0.0, episode.promised_until - now)
    return None if episode.pending else max(0.0, episode.idle_deadline_s - idle_s(episode, now))


def _group(group: Group) -> GroupView:
    rewards = group.rewards
    mean = math.fsum(rewards) / len(rewards) if rewards else None
    spread = None
    if mean is not None:
        spread = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
    return GroupView(
        group_id=group.group_id,
        task_set=group.task_set,
        task_id=group.task_id,
        finished=len(group.finished),
        open=len(group.open),
        missing=group.missing,
        dropped=group.dropped,
        reward_mean=mean,
        reward_std=spread,
    )
