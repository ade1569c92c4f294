"""The control API as plain Python in memory: what a server must answer, written down a second time and as simply as possible.

Covers one run under C1, C2 or C3 without a mix: grants, seats, group rules, finishes, promises, reservations, leases, deadlines,
steps and restarts. Time only moves in whole ticks, as the server looks at its deadlines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from swarm.protocol.states import CollectionPolicy, EpisodeKind, EpisodeState, GroupRule

TICK_S = 0.25


class Phase(StrEnum):
    """What the server is doing, as far as grants and calls can tell."""

    OFFLINE = "OFFLINE"
    ROLLING = "ROLLING"
    ROLLING_POST = "ROLLING_POST"
    TRAINED = "TRAINED"


@dataclass(frozen=True)
class Rules:
    """The configuration that the model knows of; seconds where a time is meant."""

    tasks: int
    repeat: int
    stop_at_step: int
    policy: CollectionPolicy
    rule: GroupRule
    tries_factor: int
    idle_s: float
    total_s: float
    lease_s: float
    promise_s: float
    drain_s: float
    """Not a multiple of a tick, so that a drain never ends in the same instant as something else."""


@dataclass(eq=False)
class ModelEpisode:
    """One episode."""

    episode_id: str
    kind: EpisodeKind
    client: str
    group: str
    seat: int
    step: int
    started: float
    last_active: float
    reserved_s: float = 0.0
    promised_until: float | None = None
    state: EpisodeState = EpisodeState.OPEN
    accepted: bool = False
    reward: float | None = None
    prepared_reward: float | None = None
    tokens: int = 0
    """Sampled, and known to the server."""

    @property
    def is_open(self) -> bool:
        """Whether it may still end."""
        return self.state is EpisodeState.OPEN

    @property
    def prepared(self) -> bool:
        """Whether its finish was promised."""
        return self.is_open and self.promised_until is not None

    def overdue(self, now: float, rules: Rules) -> bool:
        """Whether a deadline has passed."""
        if self.promised_until is not None:
            return now >= self.promised_until
        if self.reserved_s and now - self.started >= self.reserved_s:
            return True
        return now - self.started >= rules.total_s or now - self.last_active >= rules.idle_s


@dataclass(eq=False)
class ModelGroup:
    """One group: ``members`` by seat, open or finished."""

    group_id: str
    task: str
    size: int
    members: dict[int, ModelEpisode] = field(default_factory=dict[int, ModelEpisode])
    dropped: bool = False
    fresh: bool = True
    """Opened in this life of the server, and nothing but unused reservations has left its seats."""

    @property
    def missing(self) -> int:
        """Seats that wait."""
        return 0 if self.dropped else self.size - len(self.members)

    @property
    def complete(self) -> bool:
        """Whether all seats that are filled at all hold a finished member."""
        return (
            not self.dropped
            and self.missing == 0
            and all(m.state is EpisodeState.FINISHED for m in self.members.values())
        )

    @property
    def finished(self) -> list[ModelEpisode]:
        """Members that finished, by seat."""
        return [m for _, m in sorted(self.members.items()) if m.state is EpisodeState.FINISHED]

    @property
    def unequal(self) -> bool:
        """Whether rewards differ."""
        return len({m.reward for m in self.finished}) > 1


@dataclass
class ControlModel:
    """The server. Methods bear the names of the routes; ``phase``, ``step``, ``version`` are what status must say."""

    rules: Rules
    phase: Phase = Phase.ROLLING
    now: float = 0.0
    step: int = 0
    version: int = 0
    groups: list[ModelGroup] = field(default_factory=list[ModelGroup])
    shrunk: int = 0
    """Groups that were dropped and are not replaced."""
    completed: list[ModelGroup] = field(default_factory=list[ModelGroup])
    episodes: dict[str, ModelEpisode] = field(default_factory=dict[str, ModelEpisode])
    leases: dict[str, float] = field(default_factory=dict[str, float])
    finished_order: list[ModelEpisode] = field(default_factory=list[ModelEpisode])
    failures: Counter[str] = field(default_factory=Counter[str])
    """Client -> episodes that failed since its last one that finished."""
    consumed: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """Step (from 1) -> ids of the episodes that it consumed."""
    updated: dict[int, bool] = field(default_factory=dict[int, bool])
    lost_tokens: int = 0
    """Of the open step: sampled for episodes that a restart took, which nobody knows of any more."""
    drained_at: float = 0.0
    """When the step goes on without the train episodes that are open."""
    account: dict[int, int] = field(default_factory=dict[int, int])
    """Step (from 1) -> sampled tokens of its train episodes."""

    # -- grants ---------------------------------------------------------------------------------------------

    def seat_for(self, task: str, kind: EpisodeKind) -> tuple[str, int] | str:
        """Return the group and seat that a grant must get, or ``wait`` or ``training_complete``. Changes nothing."""
        if kind is EpisodeKind.EVAL:
            if self.phase is Phase.OFFLINE:
                return "wait"
            group = f"e{self.step}.default/{task}"
            return group, _smallest_free(self._eval_seats(group))
        if self.phase is Phase.TRAINED:
            return "training_complete"
        if self.phase is not Phase.ROLLING or self._ready():
            return "wait"
        if self._room() <= 0:
            return "wait"
        for group in self.groups:
            if group.task == task and group.missing > 0:
                return group.group_id, _smallest_free(set(group.members))
        return (self._new_group_id(), 0) if self._may_open() else "wait"

    def grant(self, episode: ModelEpisode, task: str) -> None:
        """Take in an episode that was granted on the seat that ``seat_for`` named."""
        self.seen(episode.client)
        self.episodes[episode.episode_id] = episode
        if episode.kind is EpisodeKind.EVAL:
            return
        group = self._group(episode.group)
        if group is None:
            group = ModelGroup(episode.group, task, self.rules.repeat)
            self.groups.append(group)
        group.members[episode.seat] = episode

    def confirm(self, episode: ModelEpisode) -> None:
        """A reservation becomes an episode like any other."""
        if episode.reserved_s:
            episode.reserved_s = 0.0
            episode.started = episode.last_active = self.now

    def called(self, episode: ModelEpisode, tokens: int) -> None:
        """A call was answered."""
        self.confirm(episode)
        episode.tokens += tokens
        episode.last_active = self.now

    # -- ends -----------------------------------------------------------------------------------------------

    def prepare(self, episode: ModelEpisode, reward: float) -> None:
        """Promise to take a commit."""
        self.seen(episode.client)
        if episode.is_open and not episode.prepared:
            episode.promised_until = self.now + self.rules.promise_s
            episode.prepared_reward, episode.reserved_s = reward, 0.0

    def finish(self, episode: ModelEpisode, reward: float) -> None:
        """Finish, unless it has ended; what was prepared is the first word."""
        self.seen(episode.client)
        if not episode.is_open:
            return
        self.failures[episode.client] = 0
        episode.reward = episode.prepared_reward if episode.prepared else reward
        episode.state, episode.accepted, episode.promised_until = EpisodeState.FINISHED, True, None
        group = self._group(episode.group)
        if group is not None and group.members.get(episode.seat) is episode:
            group.fresh = False
            self.finished_order.append(episode)
            self._note(group)
        self._advance()

    def abort(self, episode: ModelEpisode) -> None:
        """End without a reward, unless it has ended."""
        self.seen(episode.client)
        self._lose(episode, EpisodeState.ABORTED)

    def _lose(self, episode: ModelEpisode, state: EpisodeState) -> None:
        if not episode.is_open:
            return
        unused = bool(episode.reserved_s)
        self.failures[episode.client] += not unused
        episode.state, episode.promised_until = state, None
        group = self._group(episode.group)
        if group is not None and group.members.get(episode.seat) is episode:
            del group.members[episode.seat]
            if unused:
                self._unreserve(group)
            else:
                group.fresh = False
                self._apply_rule(group)
        self._advance()

    def _unreserve(self, group: ModelGroup) -> None:
        if group.fresh and not group.members:
            self.groups.remove(group)

    def _apply_rule(self, group: ModelGroup) -> None:
        rule = self.rules.rule
        if rule is GroupRule.WAIT:
            return
        if rule is GroupRule.PARTIAL:
            group.size -= 1
            if group.size >= 2:
                self._note(group)
                return
        if rule is GroupRule.DROP:
            self.shrunk += 1
        self._drop(group)

    def _drop(self, group: ModelGroup) -> None:
        group.dropped = True
        for member in group.members.values():
            if member.state is EpisodeState.FINISHED:
                self.finished_order.remove(member)
            elif not member.prepared:
                member.state = EpisodeState.ABORTED
        group.members.clear()

    # -- clients and time -----------------------------------------------------------------------------------

    def register(self, client: str) -> None:
        """Begin a lease; open episodes of an earlier life are aborted."""
        self._lose_client(client)
        self.leases[client] = self.now + self.rules.lease_s

    def seen(self, client: str) -> None:
        """Renew a lease, if there is one."""
        if client in self.leases:
            self.leases[client] = self.now + self.rules.lease_s

    def _lose_client(self, client: str) -> None:
        for episode in self.open_episodes():
            if episode.client == client and not episode.prepared:
                self._lose(episode, EpisodeState.ABORTED)

    def advance(self, seconds: float) -> None:
        """Let time pass, looking at every deadline at each tick."""
        until = self.now + seconds
        while self.now < until:
            self.now += TICK_S
            if self.phase is Phase.ROLLING_POST and self.now >= self.drained_at:
                self._leave_behind()
            for client in [c for c, end in self.leases.items() if end <= self.now]:
                del self.leases[client]
                self._lose_client(client)
            for episode in self.open_episodes():
                if episode.is_open and episode.overdue(self.now, self.rules):
                    self._lose(episode, EpisodeState.EXPIRED)

    def _leave_behind(self) -> None:
        """The step has waited long enough for train episodes that nobody promised to finish."""
        for episode in self.open_episodes():
            if episode.kind is EpisodeKind.TRAIN and not episode.prepared:
                episode.state = EpisodeState.ABORTED
                self._vacate(episode)
        self._advance()

    def open_episodes(self) -> list[ModelEpisode]:
        """Return the open episodes, oldest first."""
        return [e for e in self.episodes.values() if e.is_open]

    # -- the run --------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Go OFFLINE: open episodes that were not prepared are aborted, and their seats are free again."""
        if self.phase is Phase.OFFLINE:
            return
        for episode in self.open_episodes():
            if not episode.prepared:
                episode.state = EpisodeState.ABORTED
                self._vacate(episode)
        self.phase = Phase.OFFLINE

    def start(self) -> None:
        """Serve again."""
        if self.phase is Phase.OFFLINE:
            over = self.step >= self.rules.stop_at_step
            self.phase = Phase.TRAINED if over else Phase.ROLLING
            self._advance()

    def restart(self) -> None:
        """The process was killed and resumed: open episodes are gone but the prepared ones, and nobody is registered."""
        # A number that a reservation gave back was used again: by number is not always by age.
        self.groups.sort(key=lambda g: int(g.group_id.rpartition("g")[2]))
        for group in self.groups:
            group.fresh = False  # also where only a reservation was open: nobody knows any more that it was one
        for episode in self.open_episodes():
            if episode.prepared:
                episode.promised_until = self.now + self.rules.promise_s
                continue
            episode.state = EpisodeState.ABORTED
            if episode.kind is EpisodeKind.TRAIN:
                self.lost_tokens += episode.tokens
            self._vacate(episode)
        self.leases.clear()
        self.failures.clear()
        self.phase = Phase.OFFLINE
        self.start()

    def _vacate(self, episode: ModelEpisode) -> None:
        group = self._group(episode.group)
        if group is not None and group.members.get(episode.seat) is episode:
            del group.members[episode.seat]
            if episode.reserved_s:
                self._unreserve(group)
            else:
                group.fresh = False

    def _note(self, group: ModelGroup) -> None:
        if group.complete:
            self.completed.append(group)

    @property
    def target(self) -> int:
        """Groups that the step consumes."""
        return max(0, self.rules.tasks - self.shrunk)

    def _alive(self) -> list[ModelGroup]:
        return [g for g in self.groups if not g.dropped]

    def _tries_left(self) -> int:
        return self.rules.tasks * self.rules.tries_factor - len(self.groups)

    def _exhausted(self) -> bool:
        return self._tries_left() <= 0 and all(g.complete for g in self._alive())

    def _ready(self) -> bool:
        if self.target == 0:
            return True
        if self.rules.policy is CollectionPolicy.C1:
            return len(self.finished_order) >= self.target * self.rules.repeat
        complete = [g for g in self.completed if not g.dropped]
        if self.rules.policy is CollectionPolicy.C3:
            complete = [g for g in complete if g.unequal]
        return len(complete) >= self.target or self._exhausted()

    def _room(self) -> int:
        if self.rules.policy is not CollectionPolicy.C1:
            return 1
        taken = sum(len(g.members) for g in self._alive())
        return self.target * self.rules.repeat - taken

    def _may_open(self) -> bool:
        if self.rules.policy is CollectionPolicy.C1:
            return self._room() > 0
        alive = self._alive()
        if self.rules.policy is CollectionPolicy.C3:
            alive = [g for g in alive if not g.complete or g.unequal]
        return len(alive) < self.target and self._tries_left() > 0

    def _advance(self) -> None:
        """Take every step that is ready and waits for nobody."""
        while self.phase in (Phase.ROLLING, Phase.ROLLING_POST):
            if self.phase is Phase.ROLLING and not self._ready():
                return
            if self.phase is Phase.ROLLING:
                self.phase, self.drained_at = Phase.ROLLING_POST, self.now + self.rules.drain_s
            if any(e.is_open and e.kind is EpisodeKind.TRAIN for e in self.episodes.values()):
                return
            self._take()

    def _take(self) -> None:
        chosen = self._chosen()
        self.step += 1
        self.consumed[self.step] = sorted(e.episode_id for members in chosen for e in members)
        moves = any(
            len({e.reward for e in members}) > 1 and any(e.tokens for e in members)
            for members in chosen
        )
        self.updated[self.step] = moves
        self.version += moves
        own = (e for e in self.episodes.values() if e.kind is EpisodeKind.TRAIN)
        self.account[self.step] = (
            sum(e.tokens for e in own if e.step == self.step - 1) - self.lost_tokens
        )
        self.groups, self.completed, self.finished_order = [], [], []
        self.shrunk = self.lost_tokens = 0
        over = self.step >= self.rules.stop_at_step
        self.phase = Phase.TRAINED if over else Phase.ROLLING

    def _chosen(self) -> list[list[ModelEpisode]]:
        if self.rules.policy is CollectionPolicy.C1:
            count = self.target * self.rules.repeat
            taken = set(map(id, self.finished_order[:count]))
            return [[e for e in g.finished if id(e) in taken] for g in self._alive()]
        complete = [g for g in self.completed if not g.dropped]
        if self.rules.policy is CollectionPolicy.C3:
            complete = [g for g in complete if g.unequal]
        return [g.finished for g in complete[: self.target]]

    # -- names ----------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ModelGroup | None:
        return next((g for g in self.groups if g.group_id == group_id), None)

    def _new_group_id(self) -> str:
        taken, index = {g.group_id for g in self.groups}, len(self.groups)
        while f"s{self.step}.g{index}" in taken:
            index -= 1
        return f"s{self.step}.g{index}"

    def _eval_seats(self, group: str) -> set[int]:
        alive = (EpisodeState.OPEN, EpisodeState.FINISHED)
        own = (e for e in self.episodes.values() if e.group == group and e.step == self.step)
        return {e.seat for e in own if e.state in alive}


def _smallest_free(taken: set[int]) -> int:
    return next(i for i in range(len(taken) + 1) if i not in taken)
