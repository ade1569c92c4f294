"""What the journal hands out and takes in.

Steps are counted from 1: batch k, ``StepMetrics.step == k`` and a checkpoint of step k all mean "k steps completed
once this is applied". An episode's ``step`` is the status step at its grant (k - 1 for those that batch k consumes).
"""

from __future__ import annotations

import msgspec

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import CallRecord, CheckpointInfo, EpisodeTrace, StepMetrics
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.ports import TrainBatch


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
        )


class GroupStats(msgspec.Struct, kw_only=True):
    """What one consumed group looked like when its advantages were computed."""

    group_id: str
    task_set: str
    task_id: str
    episode_ids: list[str]
    rewards: list[float]
    """In the order of ``episode_ids``."""
    advantages: list[float]
    missing: int = 0
    """Members that the group rule let go."""


class CommittedBatch(msgspec.Struct, kw_only=True):
    """One consumed batch as committed before the engine moved."""

    batch: TrainBatch
    """No rows when nothing was trainable; the engine is then not called."""
    episode_ids: list[str]
    groups: list[GroupStats]


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
    orphans: list[EpisodeRecord]
    """Episodes that were open at the crash (no calls); the caller ends them with a reason."""
    eval_rounds: list[EvalRound]
    metrics: list[StepMetrics]
    last_event_seq: int
