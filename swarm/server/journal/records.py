"""What the journal hands out and takes in.

Steps are counted from 1: batch k, ``StepMetrics.step == k`` and a checkpoint of step k all mean "k steps completed
once this is applied". An episode's ``step`` is the status step at its grant (k - 1 for those that batch k consumes).
"""

from __future__ import annotations

import msgspec

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.records import CallRecord, EpisodeTrace, StepMetrics
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.ports import TrainBatch


class TokenChoices(msgspec.Struct, kw_only=True):
    """What a finish said of the sampled tokens of one call (``swarm.protocol.episodes.CallTokens``)."""

    call_index: int
    advantages: list[float] = []
    weights: list[float] = []
    mask: list[bool] = []


class EpisodeDetails(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What only some episodes have; one column of the journal, so that a new field needs no migration."""

    code_hash: str = ""
    agents: dict[str, bool] = {}
    """Agent -> whether it trains."""
    rewards: dict[str, float] = {}
    """Per agent, where told."""
    tokens: list[TokenChoices] = []
    prepared_until: float | None = None
    """Unix seconds until which a prepared episode may be committed; None = not prepared."""
    prepared_reward: float | None = None
    prepared_metrics: dict[str, float] = {}
    divergences: int = 0
    """Prompts that did not extend what the server had sampled."""
    context_overflows: int = 0
    """Calls that were refused because their prompt was too long."""
    shared: bool = False
    """Its group's task came from a shared queue."""
    unused: bool = False
    """A reservation that ended before anybody used it: it was never a member of its group."""

    @property
    def seated(self) -> bool:
        """Whether its group is there because of it: not when it only reserved a seat; a queue's group stays even then."""
        return self.shared or not self.unused


class EpisodeRecord(msgspec.Struct, kw_only=True):
    """One episode as the journal knows it; at the grant everything below ``granted_at`` is still at its default."""

    episode_id: str
    kind: EpisodeKind
    client_id: str
    task_set: str
    task_id: str
    group_id: str = ""
    repeat_index: int = 0
    step: int
    """Status step at grant."""
    policy_version: int
    """``PolicyVersion.n`` at grant."""
    granted_at: float
    """Unix seconds."""
    idle_deadline_s: float | None = None
    """Of this episode; None = the config's."""
    state: EpisodeState = EpisodeState.OPEN
    reward: float | None = None
    metrics: dict[str, float] = {}
    reason: str = ""
    """Why it was aborted, expired or left out."""
    ended_at: float | None = None
    consumed_step: int | None = None
    """The batch that trained on it (or masked it); None = not consumed."""
    dropped: str = ""
    """``FateReason`` when it finished but no batch took it."""
    call_count: int = 0
    details: EpisodeDetails = msgspec.field(default_factory=EpisodeDetails)
    calls: list[CallRecord] = []
    """Empty when not asked for, or pruned: ``call_count`` still tells how many there were."""

    def trace(self) -> EpisodeTrace:
        """Return the same as the wire message."""
        return EpisodeTrace(
            episode_id=self.episode_id,
            kind=self.kind,
            state=self.state,
            client_id=self.client_id,
            task_set=self.task_set,
            task_id=self.task_id,
            group_id=self.group_id,
            repeat_index=self.repeat_index,
            step=self.step,
            policy_version=self.policy_version,
            reward=self.reward,
            metrics=self.metrics,
            reason=self.reason or self.dropped,
            granted_at=self.granted_at,
            ended_at=self.ended_at,
            calls=self.calls,
            call_count=self.call_count,
            agents=self.details.agents,
            rewards=self.details.rewards,
            code_hash=self.details.code_hash,
            consumed_step=self.consumed_step,
            context_overflows=self.details.context_overflows,
        )


class CallVerdict(msgspec.Struct, array_like=True):
    """What became of the sampled tokens of one call of a consumed episode, written with the batch."""

    fate: str
    reason: str
    advantage: float | None = None
    """Of every trained token, unless ``advantages``; None = not trained."""
    advantages: list[float] = []
    """Per sampled token, where the client chose them."""


class AgentStats(msgspec.Struct, kw_only=True):
    """The members of one consumed group in which one agent acted, and what its rewards came to."""

    episode_ids: list[str]
    rewards: list[float]
    advantages: list[float]


class GroupStats(msgspec.Struct, kw_only=True):
    """What one consumed group looked like when its advantages were computed."""

    group_id: str
    task_set: str
    task_id: str
    episode_ids: list[str]
    rewards: list[float | None]
    """In the order of ``episode_ids``; None = only agents were rewarded."""
    advantages: list[float]
    """Of calls with the episode's own key; 0 where there were none."""
    missing: int = 0
    """Members that the group rule let go."""
    agents: dict[str, AgentStats] = {}
    """Of each agent, when there were any besides the episode's own key."""
    code_hash: str = ""


class CommittedBatch(msgspec.Struct, kw_only=True):
    """One consumed batch as committed before the engine moved."""

    batch: TrainBatch
    """No rows when nothing was trainable; the engine is then not called."""
    episode_ids: list[str]
    groups: list[GroupStats]
    groups_tried: int = 0
    """Groups that the step had opened, dropped ones too."""


class ConfigEntry(msgspec.Struct, kw_only=True):
    """A configuration that took effect within a run, at a step boundary or at a restart of the engine."""

    step: int
    """Status step from which it holds."""
    at: float
    """Unix seconds."""
    who: str
    """Client id, or the power of the token when none was told."""
    changes: list[dict[str, object]]
    """``ConfigChange`` of each key that changed."""
    config: TrainConfig


class QueuePlace(msgspec.Struct, kw_only=True, frozen=True):
    """Where a shared task queue stands; small, because every group opened from it records it anew."""

    handed_out: int = 0
    """Groups opened from its order so far; those of ``again`` do not count anew."""
    again: tuple[str, ...] = ()
    """Tasks of groups that were lost or left over, oldest first; they go out before the order goes on."""
    returns: dict[str, int] = {}
    """How often each task has come back."""


class QueueRecord(msgspec.Struct, kw_only=True):
    """A shared task queue and where it stands."""

    name: str
    task_ids: list[str]
    seed: int
    epochs: int | None
    place: QueuePlace = QueuePlace()


class EvalRound(msgspec.Struct, kw_only=True):
    """A closed evaluation round of one server step."""

    step: int
    planned: int
    completed: int
    missed: bool
    """True: the deadline opened the gate; it never counts as passed."""


class ResumeState(msgspec.Struct, kw_only=True):
    """Everything that ``--resume`` needs; all of it belongs to the newest incarnation."""

    config: TrainConfig
    incarnation: str
    step: int
    """Steps completed: that of the newest StepMetrics, 0 before any."""
    policy_version: int
    """``n`` after the newest completed step."""
    fingerprint: str | None
    """Of the weights after the newest completed step; None before any."""
    checkpoint: CheckpointInfo | None
    """The newest; None = boot from the model."""
    replay: list[CommittedBatch]
    """Batches after the checkpoint, oldest first. Their fingerprints must equal those of ``metrics``."""
    pending: CommittedBatch | None
    """The last of ``replay`` when the process died after committing it and before its StepMetrics: train it, then commit_step."""
    pool: list[EpisodeRecord]
    """Finished train episodes that no batch consumed or dropped, with calls, in order of finishing."""
    prepared: list[EpisodeRecord]
    """Open episodes whose finish was prepared, with calls: a commit may still come."""
    orphans: list[EpisodeRecord]
    """Other episodes that were open at the crash (no calls); the caller ends them with a reason."""
    eval_rounds: list[EvalRound]
    metrics: list[StepMetrics]
    last_event_seq: int
