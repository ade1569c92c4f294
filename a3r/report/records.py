"""Everything that a campaign left behind, as plain frozen values: what planner, report and verify compute from.

The planner gets exactly this object, so a decision and the report can not differ. Nothing here computes a result
(``a3r.report.gains`` and ``a3r.report.analysis`` do) and nothing here knows the database (``a3r.report.export`` does).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")
Scalar: TypeAlias = int | float | str | bool | None
"""A factor's value, as JSON keeps it."""


class Record(BaseModel):
    """A frozen row; unknown keys are refused, so a file with added fields does not parse; no NaN, no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    sparse: ClassVar[frozenset[str]] = frozenset()
    """Columns that a table of such rows leaves out when no row has a value: those that earlier versions did not know."""


class Cut(Record):
    """How far these records reach in the database's append-only lists; what came later is not part of them."""

    event_seq: int = 0
    """Of the last event."""
    decisions: int = 0
    deviations: int = 0
    reviews: int = 0
    amendments: int = 0
    revisions: int = 0
    calls: int = 0


class CampaignRecord(Record):
    """The campaign and the goal that it was given."""

    id: str
    name: str
    ending: str
    """``concluded``, ``stopped`` or ``running`` (records of an unfinished campaign)."""
    failure: str | None = None
    """Why it ended early or was blocked; None = it did not."""
    review_mode: str
    planner: str
    created_at: float
    """Unix seconds."""
    goal_text: str
    """goal.md, whole and unchanged."""
    goal_spec: dict[str, Any]
    """The goal as it was understood (``a3r.leader.goal.GoalSpec`` as JSON)."""
    environment: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Versions of the software and facts of the hosts."""
    cut: Cut = Cut()


class StageRecord(Record):
    """One stage and the plan that was written before it ran."""

    id: str
    ordinal: int
    """From 1, in order of planning."""
    kind: str
    """``coarse``, ``refine`` or ``replicate``; seeds of ``replicate`` stages are fresh."""
    state: str
    plan: dict[str, Any]
    """``a3r.leader.plan.StagePlan`` as JSON: question, design, predictions, decision_table, stop_rule, attainable."""
    plan_hash: str
    """``a3r.core.hashing.content_hash`` of the plan, taken when it was stored."""
    created_at: float


class BlueprintRecord(Record):
    """The blueprint version that was dispatched (or would have been)."""

    id: str
    stage_id: str
    name: str
    version: int
    content_hash: str
    cell_hash: str
    review: str
    """``a3r.core.types.ReviewStatus`` of this version."""
    document: dict[str, Any]
    """``a3r.blueprints.model.Blueprint`` as JSON."""

    @property
    def factors(self) -> dict[str, Scalar]:
        """Factor name -> value."""
        return self.document["factors"]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Planned replicates."""
        return tuple(self.document["seeds"])

    @property
    def stop_at_step(self) -> int | None:
        """Steps of a complete run, from the first server's training config; None when it has no server."""
        servers: list[dict[str, Any]] = self.document.get("servers", [])
        return servers[0]["train"]["stop_at_step"] if servers else None


class AttemptRecord(Record):
    """One try of a run."""

    id: str
    run_id: str
    ordinal: int
    state: str
    failure: str | None = None
    """``a3r.core.types.FailureClass``."""
    reason: str = ""
    worker: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    summary: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The worker's finish report; ``seed`` is the one proven from the server's own record."""
    placement: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What it was given on its host: ``gpus``, ``co_tenants``."""
    revision: int = 0
    """Of the client that it ran; 0 = the blueprint's own."""
    reused: str = ""
    """``<campaign>/<run>`` whose evidence was taken over instead of running again; empty = it was run here."""


class RunRecord(Record):
    """Blueprint x seed."""

    id: str
    blueprint_id: str
    seed: int
    state: str
    reason: str = ""
    """Why it has no result, in words; empty when it succeeded."""
    accepted_attempt: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()

    def accepted(self) -> AttemptRecord | None:
        """The one attempt whose results count."""
        return next((a for a in self.attempts if a.id == self.accepted_attempt), None)


class ItemRecord(Record):
    """One held-out item of a round."""

    item_id: str
    reward: float | None
    """None = missing; never 0."""
    policy_version: int | None
    calls: int
    truncated_calls: int
    reason: str = ""


class EvalRecord(Record):
    """One evaluation round of the accepted attempt of a run."""

    run_id: str
    attempt_id: str
    name: str
    """``initial``, ``final`` or ``step-<k>``."""
    step: int
    policy_version: int
    planned: int
    item_set_hash: str
    evaluator_hash: str
    fingerprint: str
    items: tuple[ItemRecord, ...]


class StepRecord(Record):
    """What the report needs of one step's metrics (``swarm.protocol.records.StepMetrics``), unrounded."""

    run_id: str
    step: int
    policy_version: int | None = None
    updated: bool | None = None
    episodes: int | None = None
    reward_mean: float | None = None
    zero_advantage_share: float | None = None
    truncated_share: float | None = None
    response_tokens_mean: float | None = None
    fingerprint: str = ""
    rolled_back: str = ""
    eval_round: str = ""
    groups: int | None = None
    reward_std: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    entropy: float | None = None
    kl: float | None = None
    logprob_gap_max: float | None = None
    staleness_max: int | None = None
    members_missing: int | None = None
    eval_overlap: int | None = None
    """Consumed groups whose first prompt an evaluation had shown before; None = not recorded."""
    episodes_dropped: dict[str, int] = Field(default_factory=dict[str, int])
    guard: dict[str, int] = Field(default_factory=dict[str, int])
    """Episode guard of the swarm: ``<rule>:<fate>`` -> episodes; empty = off, or nothing found."""

    sparse: ClassVar[frozenset[str]] = frozenset(
        {"groups", "reward_std", "loss", "grad_norm", "entropy", "kl", "logprob_gap_max"}
        | {"staleness_max", "members_missing", "eval_overlap", "episodes_dropped", "guard"}
    )


class DecisionRecord(Record):
    """What the leader decided, why, on which evidence."""

    stage_id: str | None
    what: str
    why: str
    evidence: dict[str, Any]
    at: float


class DeviationRecord(Record):
    """A departure from the plan: a repair, a restart, a changed client."""

    subject: str
    """Attempt, run or blueprint id."""
    what: str
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    at: float


class RevisionRecord(Record):
    """A changed client of a blueprint: what a repair made of it."""

    blueprint_id: str
    ordinal: int
    """Counts from 1 within the blueprint; attempts name it."""
    tree_hash: str
    diff: str
    """Unified, against the client before it."""
    reason: str
    state: str
    """``a3r.core.types.RevisionState``."""
    by: str
    at: float
    decided_at: float | None = None


class AmendmentRecord(Record):
    """What was added to a stage's frozen plan after approval."""

    stage_id: str
    changes: dict[str, Any]
    reason: str
    by: str
    at: float


class CallRecord(Record):
    """One call of a language model: what it was for and what it cost. Its text is in a bundle's transcripts."""

    id: str
    """``<decision>#<ordinal>``."""
    purpose: str
    model: str
    request_hash: str
    state: str
    """``a3r.core.types.CallState``."""
    reserved_usd: float
    reserved_tokens: int
    cost_usd: float | None = None
    """None = never settled by the provider: the reserve counts."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str = ""
    at: float
    settled_at: float | None = None


class ReviewRecord(Record):
    """One verdict of a person on one blueprint version."""

    blueprint_id: str
    content_hash: str
    verdict: str
    by: str
    note: str
    at: float
    voided: bool = False
    """A later edit of the blueprint made this verdict void."""


class EventRecord(Record):
    """One line of the chronological trace."""

    seq: int
    at: float
    actor: str
    kind: str
    subject: str
    data: dict[str, Any] = Field(default_factory=dict[str, Any])


class Records(Record):
    """A whole campaign. All sequences are in order of planning or of time."""

    campaign: CampaignRecord
    stages: tuple[StageRecord, ...] = ()
    blueprints: tuple[BlueprintRecord, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    evals: tuple[EvalRecord, ...] = ()
    """Rounds of accepted attempts only."""
    steps: tuple[StepRecord, ...] = ()
    """Steps of accepted attempts only."""
    reviews: tuple[ReviewRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    deviations: tuple[DeviationRecord, ...] = ()
    amendments: tuple[AmendmentRecord, ...] = ()
    revisions: tuple[RevisionRecord, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()

    def stage(self, stage_id: str) -> StageRecord:
        """By id; KeyError when records are torn."""
        return _by_id(self.stages, stage_id)

    def blueprint(self, blueprint_id: str) -> BlueprintRecord:
        """By id; KeyError when records are torn."""
        return _by_id(self.blueprints, blueprint_id)

    def run(self, run_id: str) -> RunRecord:
        """By id; KeyError when records are torn."""
        return self._grouped("runs", self.runs, lambda run: run.id)[run_id][0]

    def stage_of(self, run: RunRecord) -> StageRecord:
        """The stage that planned the run."""
        return self.stage(self.blueprint(run.blueprint_id).stage_id)

    def round(self, run_id: str, name: str) -> EvalRecord | None:
        """The round of that name; None when the run has none."""
        found = self._grouped("evals", self.evals, lambda row: (row.run_id, row.name))
        return next(iter(found.get((run_id, name), ())), None)

    def steps_of(self, run_id: str) -> list[StepRecord]:
        """Steps of a run in order."""
        return list(self._grouped("steps", self.steps, lambda step: step.run_id).get(run_id, ()))

    def revisions_of(self, blueprint_id: str) -> list[RevisionRecord]:
        """Revisions of a blueprint's client in order of their making; empty when it was never repaired."""
        found = self._grouped("revisions", self.revisions, lambda row: row.blueprint_id)
        return list(found.get(blueprint_id, ()))

    def planned_seeds(self, factors: dict[str, Scalar]) -> set[int]:
        """Seeds that any stage planned in the cell with exactly these factors, run or not: what is not fresh."""
        return {
            seed for b in self.blueprints if b.factors == factors for seed in b.document["seeds"]
        }

    @cached_property
    def lookups(self) -> dict[str, tuple[object, dict[Any, list[Any]]]]:
        """Rows by what they are looked up by, as far as somebody asked; filled by the methods above."""
        return {}

    def _grouped(
        self, name: str, rows: tuple[T, ...], key: Callable[[T], Any]
    ) -> dict[Any, list[T]]:
        """``rows`` by ``key``, each group in their order. With thousands of runs a search for each would take minutes."""
        of, known = self.lookups.get(name, (None, {}))
        if of is rows:
            return known
        # Not made yet, or by the records that these were copied from.
        groups: dict[Any, list[T]] = {}
        for row in rows:
            groups.setdefault(key(row), []).append(row)
        self.lookups[name] = (rows, groups)
        return groups


def _by_id(rows: tuple[Any, ...], wanted: str) -> Any:
    for row in rows:
        if row.id == wanted:
            return row
    raise KeyError(wanted)
