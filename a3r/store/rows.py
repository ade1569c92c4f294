"""What the store returns: frozen values, detached from the database. Times are Unix seconds. Imports no SQL."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from a3r.blueprints.model import Blueprint
from a3r.core.placement import Need
from a3r.core.pools import PoolJobState, PoolKind, PoolOptions, PoolState
from a3r.core.types import (
    AttemptState,
    CallState,
    CampaignState,
    CommandState,
    FailureClass,
    HostState,
    JobState,
    LinkState,
    ReviewMode,
    ReviewStatus,
    RevisionState,
    RunState,
    StageState,
    WorkerState,
)

REUSED = "reused_from"
"""Key in an attempt's summary: ``<campaign>/<run>`` whose evidence was copied; such an attempt never ran."""


class Row(BaseModel):
    """A frozen row; ``model_dump(mode="json")`` is its wire form."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CampaignRow(Row):
    """One goal under study."""

    id: str
    name: str
    state: CampaignState
    goal_text: str
    """goal.md as it was when the campaign started."""
    goal_dir: str
    goal_spec: dict[str, Any]
    review_mode: ReviewMode
    planner: str
    capacity: int
    """Attempts at once, from ``goal_spec["capacity"]``."""
    created_at: float
    updated_at: float
    stop_requested_at: float | None
    failure: str | None
    """Why the campaign is blocked, paused or stopped."""
    report_path: str | None


class StageRow(Row):
    """One question of a campaign; ``ordinal`` counts from 1."""

    id: str
    campaign_id: str
    ordinal: int
    kind: str
    state: StageState
    plan: dict[str, Any]
    plan_hash: str
    """Content hash of ``plan``: what was predicted before anything ran."""
    analysis: dict[str, Any] | None
    created_at: float
    decided_at: float | None


class BlueprintRow(Row):
    """The current version of a blueprint; ``review`` is the standing verdict on exactly this content."""

    id: str
    campaign_id: str
    stage_id: str
    name: str
    version: int
    """1 for the first; each edit adds one."""
    blueprint: Blueprint
    document: dict[str, Any] = Field(exclude=True, repr=False)
    """The blueprint as it was hashed; a later a3r reads more fields into ``blueprint`` than there were."""
    content_hash: str
    cell_hash: str
    artifact_sha: str
    """sha256 of the packed client folder."""
    review: ReviewStatus
    created_at: float


class ReviewRow(Row):
    """One verdict, bound to one content hash; ``voided_at`` is set by a later edit."""

    id: int
    blueprint_id: str
    content_hash: str
    verdict: ReviewStatus
    by: str
    note: str
    at: float
    voided_at: float | None


class RunRow(Row):
    """Blueprint x seed."""

    id: str
    campaign_id: str
    blueprint_id: str
    seed: int
    state: RunState
    accepted_attempt: str | None
    """The one attempt whose results count; set once, with ``succeeded``."""
    failure: FailureClass | None
    reason: str


class AttemptRow(Row):
    """One try of a run; ``ordinal`` counts from 1 within the run."""

    id: str
    run_id: str
    campaign_id: str
    ordinal: int
    state: AttemptState
    nonce: str
    fencing_token: int
    """0 until it is claimed; unique over the database afterwards."""
    worker_id: str | None
    lease_s: float
    lease_expires_at: float | None
    heartbeat_at: float | None
    step: int | None
    detail: str
    stop_reason: str | None
    """Somebody asked this attempt to stop; the hub repeats the command until it is terminal."""
    failure: FailureClass | None
    reason: str
    summary: dict[str, Any]
    queued_at: float
    leased_at: float | None
    unreachable_at: float | None
    ended_at: float | None
    placement: dict[str, Any] = Field(default_factory=dict[str, Any])
    """``gpus``, ``co_tenants``; empty before a claim."""
    revision: int = 0
    """Of its client; 0 = the blueprint's own."""


class WorkerRow(Row):
    """One worker as it last registered."""

    id: str
    host: str
    pid: int
    slots: int
    inventory: dict[str, Any]
    registered_at: float
    seen_at: float
    state: WorkerState = WorkerState.ACTIVE
    pool: str | None = None
    token_name: str | None = None
    """Of the token that it registered with; empty: the workspace's shared one; None: not known."""


class PoolRow(Row):
    """A cluster engine that is asked for workers."""

    name: str
    kind: PoolKind
    options: PoolOptions
    state: PoolState
    detail: str
    """What the engine last said, or why nothing is asked of it."""
    created_at: float
    updated_at: float


class PoolJobRow(Row):
    """One worker that was asked of a pool."""

    id: str
    pool: str
    external_id: str
    """The engine's own id; empty before it has one."""
    worker_id: str | None
    state: PoolJobState
    detail: str
    submitted_at: float
    ended_at: float | None


class WaitingRow(Row):
    """An attempt that could run now if a worker had room for it."""

    attempt_id: str
    queued_at: float
    need: Need


class RoomRow(Row):
    """What a worker has left, as the table says; it may measure less itself."""

    worker_id: str
    slots: int
    gpus: int


class WorkerTokenRow(Row):
    """A token that one worker alone uses; the token itself is nowhere."""

    name: str
    worker_id: str | None
    """The worker that used it first; None = nobody yet."""
    created_at: float
    revoked_at: float | None


class CommandRow(Row):
    """What a worker is asked to do; ``result`` is its answer."""

    id: int
    worker_id: str
    attempt_id: str | None
    kind: str
    args: dict[str, Any]
    state: CommandState
    result: dict[str, Any] | None
    created_at: float
    ended_at: float | None


class EventRow(Row):
    """One line of a campaign's history; ``seq`` grows over the whole database."""

    seq: int
    campaign_id: str
    attempt_id: str | None
    at: float
    actor: str
    kind: str
    subject: str
    data: dict[str, Any]


class DecisionRow(Row):
    """What the leader decided, why, and the numbers it looked at."""

    id: int
    campaign_id: str
    stage_id: str | None
    what: str
    why: str
    evidence: dict[str, Any]
    at: float


class DeviationRow(Row):
    """Something that was done otherwise than the blueprint says (a restart, a repair)."""

    id: int
    campaign_id: str
    blueprint_id: str | None
    attempt_id: str | None
    what: str
    data: dict[str, Any]
    at: float


class PendingWork(Row):
    """What the reconciler looks at in one tick."""

    runs_without_live_attempt: list[RunRow]
    """Runs that are not final and have no attempt under way, in order of creation."""
    attempts_by_state: dict[AttemptState, list[AttemptRow]]
    """The attempts of runs that are not final, in the order of their queue; a state without attempts is absent."""
    last_heartbeat_at: float | None


class JobRow(Row):
    """Long work of the leader."""

    id: str
    campaign_id: str
    kind: str
    payload: dict[str, Any]
    state: JobState
    detail: str
    """What it does or waits for, in words."""
    not_before: float
    waiting_since: float | None
    """When the provider stopped answering; None: it does not wait."""
    tries: int
    """Waits in a row without a reply in between."""
    round: int
    """1; one more each time a person lets it try again with new calls, because the old replies led nowhere."""
    result: dict[str, Any] | None
    """What a done job found; of a failed one the error's ``code``, ``message``, ``hint`` and ``details``."""
    created_at: float
    updated_at: float


class LlmCallRow(Row):
    """One call of a language model; ``id`` is ``<decision>#<ordinal>``."""

    id: str
    campaign_id: str
    decision: str
    ordinal: int
    purpose: str
    model: str
    request_hash: str
    request: dict[str, Any]
    state: CallState
    reserved_usd: float
    reserved_tokens: int
    cost_usd: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reply: dict[str, Any] | None
    error: str
    at: float
    settled_at: float | None


class RevisionRow(Row):
    """A changed client of a blueprint."""

    id: str
    campaign_id: str
    blueprint_id: str
    ordinal: int
    base_sha: str
    artifact_sha: str
    tree_hash: str
    diff: str
    reason: str
    evidence: dict[str, Any]
    state: RevisionState
    by: str
    at: float
    decided_at: float | None


class AmendmentRow(Row):
    """An addition to a frozen stage plan."""

    id: int
    campaign_id: str
    stage_id: str
    changes: dict[str, Any]
    reason: str
    by: str
    at: float


class FindingRow(Row):
    """What a finished campaign established."""

    id: str
    campaign_id: str
    text: str
    subject: str
    question: str
    data: dict[str, Any]
    at: float


class ScheduleRow(Row):
    """A goal that is started again and again."""

    id: str
    goal_path: str
    cron: str
    timezone: str
    options: dict[str, Any]
    """``review``: who approves, in place of what the goal says."""
    state: str
    detail: str
    """What became of its firings, a line each, newest last."""
    created_at: float
    fired_at: float | None
    """The last due time that was taken, whatever came of it."""
    campaign_id: str | None
    """The last campaign that it started."""


class HostRow(Row):
    """A host that a person added over SSH."""

    name: str
    address: str
    """``user@host``, or an alias of ssh's configuration."""
    options: dict[str, Any]
    """``a3r.hosts.options.HostOptions`` as JSON."""
    state: HostState
    link: LinkState
    link_at: float
    """When the link came into that state."""
    detail: str
    """Of the link and the worker, in words; empty = nothing to remark."""
    created_at: float
    updated_at: float
    """Of address, options or state."""


class OfferRow(Row):
    """A planned run whose result an earlier campaign has: the same cell and seed."""

    stage_id: str
    blueprint_id: str
    blueprint: str
    seed: int
    source_campaign: str
    source_run: str


class LeaseRow(Row):
    """One resource of a worker in the hands of an attempt."""

    worker_id: str
    resource: str
    """``gpu:0``."""
    attempt_id: str
    fencing_token: int
    expires_at: float
