"""Episodes in memory: who holds them, how long they may live, how they ended.

Knows neither groups nor the journal; ending an episode here is bookkeeping, what follows from it is the service's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from swarm.protocol.episodes import FinishReply
from swarm.protocol.records import CallRecord, EpisodeTrace
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason
from swarm.server.journal.records import EpisodeDetails, EpisodeRecord
from swarm.server.service.metrics import Marks
from swarm.server.tracking.episode_tree import EpisodeTree


@dataclass(slots=True, eq=False, weakref_slot=True)
class Episode:
    """One episode; identity is the object, its id is its name."""

    episode_id: str
    kind: EpisodeKind
    client_id: str
    task_set: str
    task_id: str
    group_id: str
    repeat_index: int
    step: int
    """Server step at grant; train episodes end with it."""
    policy_version: int
    """``n`` at grant."""
    granted_at: float
    """Unix seconds."""
    started: float
    """Monotonic seconds of the grant, for the total deadline."""
    idle_deadline_s: float
    total_deadline_s: float
    """The config's, or the idle deadline when the grant asked for a longer one than that (a person debugs)."""
    tree: EpisodeTree
    last_active: float = 0.0
    """Monotonic seconds of the grant or of the end of the last call."""
    pending: set[str] = field(default_factory=set[str])
    """Request ids of calls that were begun and not answered; such an episode is not idle."""
    begun_calls: int = 0
    state: EpisodeState = EpisodeState.OPEN
    reward: float | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    reason: str = ""
    ended_at: float | None = None
    accepted: bool = False
    answer: FinishReply | None = None
    """What the first finish was told; a repeat is told the same."""
    missed: str = ""
    """Why a finish of this episode comes too late, with the version that it missed."""
    consumed_step: int | None = None
    """The batch that took it; None = none (yet)."""
    dropped: str = ""
    """FateReason when no batch can take it any more."""
    cast_out: FateReason = FateReason.NONE
    """Why a prepared episode has no seat any more; its commit is taken, and it is then dropped for this."""
    details: EpisodeDetails = field(default_factory=EpisodeDetails)
    """Code hash, agents, their rewards, per-token choices, a prepared finish: what the journal keeps beside the columns."""
    reserve_s: float = 0.0
    """Seconds that its reservation lasts; 0 = it is no reservation, or it was confirmed."""
    promise_s: float = 0.0
    """Seconds that a prepared finish is promised for."""
    promised_until: float = 0.0
    """Monotonic seconds; the end of that promise."""

    @property
    def is_open(self) -> bool:
        """Whether calls and a finish are still possible."""
        return self.state is EpisodeState.OPEN

    @property
    def prepared(self) -> bool:
        """Whether its finish was prepared: it takes no calls, and only a commit, an abort or the promise's end ends it."""
        return self.is_open and self.details.prepared_until is not None

    @property
    def takes_calls(self) -> bool:
        """Whether calls are possible: it is open and its finish was not prepared."""
        return self.is_open and self.details.prepared_until is None

    @property
    def reserved(self) -> bool:
        """Whether it is a reservation that nobody used or confirmed yet."""
        return self.reserve_s > 0.0

    @property
    def calls(self) -> list[CallRecord]:
        """Captured calls in order of commitment."""
        return self.tree.calls

    @property
    def marks(self) -> Marks:
        """What the step's account wants to know of it besides its calls."""
        return Marks(self.tree.divergences, self.details.context_overflows)

    def confirm(self, now: float) -> None:
        """End the reservation by use: a confirmation or the first call, at ``now`` (monotonic seconds). Safe to repeat."""
        if self.reserved:
            self.reserve_s = 0.0
            self.last_active = now

    def why_over(self) -> str:
        """Return in words why it ended; for one that is open, that it is."""
        return self.missed or self.reason or self.state.value

    def end(self, state: EpisodeState, reason: str, now: float) -> None:
        """Close; ``now`` is unix seconds."""
        self.state = state
        self.reason = reason
        self.ended_at = now

    def overdue(self, now: float) -> str:
        """Return which deadline has passed at ``now`` (monotonic seconds), in words; empty when none.

        Idle means: no call pending, and none ended (nor was the episode granted) within the idle deadline.
        The total deadline counts from the grant, whatever is pending. A prepared episode has its promise's end instead,
        a reservation that as well.
        """
        if self.prepared:
            return (
                f"promise of {self.promise_s:g} s to commit" if now >= self.promised_until else ""
            )
        if self.reserved and now - self.started >= self.reserve_s:
            return f"reservation of {self.reserve_s:g} s"
        if now - self.started >= self.total_deadline_s:
            return f"total deadline of {self.total_deadline_s:g} s"
        if not self.pending and now - self.last_active >= self.idle_deadline_s:
            return f"idle deadline of {self.idle_deadline_s:g} s"
        return ""

    def reply(self, step: int) -> FinishReply:
        """Return the answer to a finish or abort; the same one each time."""
        return FinishReply(
            episode_id=self.episode_id,
            state=self.state,
            accepted=self.accepted,
            reason=self.missed or self.reason,
            step=step,
        )

    def record(self) -> EpisodeRecord:
        """Return the journal's record, without calls."""
        return EpisodeRecord(
            episode_id=self.episode_id,
            kind=self.kind,
            client_id=self.client_id,
            task_set=self.task_set,
            task_id=self.task_id,
            group_id=self.group_id,
            repeat_index=self.repeat_index,
            step=self.step,
            policy_version=self.policy_version,
            granted_at=self.granted_at,
            idle_deadline_s=self.idle_deadline_s,
            state=self.state,
            reward=self.reward,
            metrics=self.metrics,
            reason=self.reason,
            ended_at=self.ended_at,
            consumed_step=self.consumed_step,
            dropped=self.dropped,
            call_count=len(self.calls),
            details=self.details,
        )

    def trace(self, *, calls: bool) -> EpisodeTrace:
        """Return the record, with or without its calls."""
        record = self.record()
        record.calls = list(self.calls) if calls else []
        return record.trace()


def bytes_of(episode: Episode) -> dict[str, bytes]:
    """Return the pictures that its calls hold and the journal does not have yet, by digest."""
    return {digest: picture.data for digest, picture in episode.tree.pictures.items()}


class EpisodeBook:
    """Episodes by id. Ended ones are kept for a step; of those that never train, which no step ends, the last ``keep``.

    The journal has all of them for good.
    """

    def __init__(self, keep: int = 256) -> None:
        self.keep = keep
        self._untrained: deque[str] = deque()
        self._by_id: dict[str, Episode] = {}
        self._open: dict[str, Episode] = {}
        self._open_train = 0

    def add(self, episode: Episode) -> None:
        """Take in an episode, open or ended."""
        self._by_id[episode.episode_id] = episode
        if episode.is_open:
            self._open[episode.episode_id] = episode
            self._open_train += episode.kind is EpisodeKind.TRAIN

    def get(self, episode_id: str) -> Episode | None:
        """Return the episode, or None when unknown or forgotten."""
        return self._by_id.get(episode_id)

    def closed(self, episode: Episode) -> None:
        """Note that an episode ended."""
        if self._open.pop(episode.episode_id, None) is not None:
            self._open_train -= episode.kind is EpisodeKind.TRAIN
            if episode.kind is EpisodeKind.EVAL or episode.state is not EpisodeState.FINISHED:
                self._untrained.append(episode.episode_id)
        while len(self._untrained) > self.keep:
            self._by_id.pop(self._untrained.popleft(), None)

    def open(self, kind: EpisodeKind | None = None) -> list[Episode]:
        """Return the open episodes, oldest first."""
        return [e for e in self._open.values() if kind is None or e.kind is kind]

    def open_count(self, kind: EpisodeKind | None = None) -> int:
        """Return how many are open."""
        if kind is None:
            return len(self._open)
        return self._open_train if kind is EpisodeKind.TRAIN else len(self._open) - self._open_train

    def of_client(self, client_id: str) -> Iterator[Episode]:
        """Yield the open episodes of a client."""
        return (e for e in list(self._open.values()) if e.client_id == client_id)

    def forget_ended_before(self, step: int) -> None:
        """Drop ended episodes granted before ``step``: their traces come from the journal from now on."""
        stale = [e.episode_id for e in self._by_id.values() if not e.is_open and e.step < step]
        for episode_id in stale:
            del self._by_id[episode_id]
