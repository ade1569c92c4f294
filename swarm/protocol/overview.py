"""What a person looks at while a run goes on: one answer of ``GET /swarm/overview``, cheap enough for every second."""

from __future__ import annotations

from pydantic import Field

from swarm.protocol.clients import ClientInfo
from swarm.protocol.messages import Message, Status
from swarm.protocol.pool import PoolSnapshot
from swarm.protocol.states import EpisodeKind


class RunningEpisode(Message):
    """One open episode."""

    episode_id: str
    kind: EpisodeKind
    client_id: str
    task_set: str
    task_id: str
    group_id: str
    repeat_index: int
    calls: int
    pending_calls: int
    """Begun and not answered."""
    age_s: float
    idle_s: float
    """Since the last activity; 0 while a call is pending."""
    idle_left_s: float | None
    """Until the idle deadline; None while a call is pending."""
    prepared: bool = False


class GroupView(Message):
    """One group of the open step."""

    group_id: str
    task_set: str
    task_id: str
    finished: int
    open: int
    missing: int
    dropped: bool
    reward_mean: float | None
    """Of its finished members; None = none."""
    reward_std: float | None
    """Population standard deviation; None = none finished."""


class RecentError(Message):
    """Something that went wrong lately: an aborted or expired episode, a lost engine, a failed journal write."""

    at: float
    kind: str
    text: str
    """Cut to 300 characters; hostile input, never markup."""


class Overview(Message):
    """Everything that ``swarm watch`` shows."""

    status: Status
    policy: str
    progress: float
    """0..1 towards the next update under the policy."""
    progress_text: str
    """In words: ``6 of 8 groups complete``."""
    pool: PoolSnapshot
    running: list[RunningEpisode]
    """Longest idle first, at most 200."""
    running_total: int
    groups: list[GroupView]
    """In order of opening, at most 200."""
    clients: list[ClientInfo]
    divergences: int
    """Of the open step."""
    errors: list[RecentError] = Field(default_factory=list[RecentError])
    """Newest first, at most 20."""
    tokens_per_s: float
    """Sampled tokens a second over the last ten seconds."""
    calls_in_flight: int
    calls_held: int
    step_age_s: float


class PageTicket(Message):
    """Answer of ``POST /swarm/episodes/{id}/ticket``: opens the web page of this one episode, for anyone who has it."""

    episode_id: str
    url: str
    """The page's address with the ticket in it, at the server's address as the asker dialled it."""
    expires_at: float
    """Unix seconds."""
