"""The tables as SQLModel classes; ``a3r.store.schema`` holds the SQL that creates them. Never leave this package.

Enums are stored as their values. JSON columns are plain dicts; assign a new dict to change one.
"""

from typing import Any, ClassVar

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel


def json_column() -> Any:
    """A required JSON column."""
    return Field(sa_column=Column(JSON, nullable=False))


class CampaignTable(SQLModel, table=True):
    """One goal under study."""

    __tablename__: ClassVar[Any] = "campaigns"

    id: str = Field(primary_key=True)
    name: str
    state: str
    goal_text: str
    goal_dir: str
    goal_spec: dict[str, Any] = json_column()
    review_mode: str
    planner: str
    capacity: int
    created_at: float
    updated_at: float
    stop_requested_at: float | None = None
    failure: str | None = None
    report_path: str | None = None


class StageTable(SQLModel, table=True):
    """One question of a campaign."""

    __tablename__: ClassVar[Any] = "stages"

    id: str = Field(primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    ordinal: int
    kind: str
    state: str
    plan: dict[str, Any] = json_column()
    plan_hash: str
    analysis: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    created_at: float
    decided_at: float | None = None


class BlueprintTable(SQLModel, table=True):
    """The current version of a blueprint."""

    __tablename__: ClassVar[Any] = "blueprints"

    id: str = Field(primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    stage_id: str = Field(foreign_key="stages.id")
    position: int
    """Order of creation within the campaign, from 0."""
    name: str
    version: int
    body: dict[str, Any] = json_column()
    content_hash: str
    cell_hash: str
    artifact_sha: str
    created_at: float


class BlueprintVersionTable(SQLModel, table=True):
    """Every version that ever stood, so that an approval can be shown beside what it approved."""

    __tablename__: ClassVar[Any] = "blueprint_versions"

    blueprint_id: str = Field(primary_key=True, foreign_key="blueprints.id")
    version: int = Field(primary_key=True)
    body: dict[str, Any] = json_column()
    content_hash: str
    artifact_sha: str
    at: float


class ReviewTable(SQLModel, table=True):
    """One verdict on one content hash."""

    __tablename__: ClassVar[Any] = "reviews"

    id: int | None = Field(default=None, primary_key=True)
    blueprint_id: str = Field(foreign_key="blueprints.id")
    content_hash: str
    verdict: str
    by: str
    note: str
    at: float
    voided_at: float | None = None


class RunTable(SQLModel, table=True):
    """Blueprint x seed."""

    __tablename__: ClassVar[Any] = "runs"

    id: str = Field(primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    blueprint_id: str = Field(foreign_key="blueprints.id")
    position: int
    """Order of creation within the campaign, from 0."""
    seed: int
    state: str
    accepted_attempt: str | None = Field(default=None, foreign_key="attempts.id")
    failure: str | None = None
    reason: str = ""


class AttemptTable(SQLModel, table=True):
    """One try of a run."""

    __tablename__: ClassVar[Any] = "attempts"

    id: str = Field(primary_key=True)
    run_id: str = Field(foreign_key="runs.id")
    campaign_id: str = Field(foreign_key="campaigns.id")
    queue_order: int
    """From a counter: the oldest queued has the smallest, whatever the clocks said."""
    ordinal: int
    state: str
    nonce: str
    fencing_token: int = 0
    worker_id: str | None = None
    lease_s: float = 0.0
    lease_expires_at: float | None = None
    heartbeat_at: float | None = None
    step: int | None = None
    detail: str = ""
    stop_reason: str | None = None
    failure: str | None = None
    reason: str = ""
    summary: dict[str, Any] = json_column()
    queued_at: float
    leased_at: float | None = None
    unreachable_at: float | None = None
    ended_at: float | None = None
    placement: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    """What it was given on its host: ``gpus``, ``co_tenants``; empty before a claim."""
    revision: int = 0
    """Ordinal of the client revision that it runs; 0 = the blueprint's own client."""


class CounterTable(SQLModel, table=True):
    """Numbers that only grow (``fencing``, ``queue``)."""

    __tablename__: ClassVar[Any] = "counters"

    name: str = Field(primary_key=True)
    value: int


class StepTable(SQLModel, table=True):
    """One swarm StepMetrics record."""

    __tablename__: ClassVar[Any] = "steps"

    attempt_id: str = Field(primary_key=True, foreign_key="attempts.id")
    step: int = Field(primary_key=True)
    body: dict[str, Any] = json_column()


class EvalRoundTable(SQLModel, table=True):
    """One evaluation round with its items."""

    __tablename__: ClassVar[Any] = "eval_rounds"

    attempt_id: str = Field(primary_key=True, foreign_key="attempts.id")
    name: str = Field(primary_key=True)
    body: dict[str, Any] = json_column()
    at: float


class WorkerTable(SQLModel, table=True):
    """One worker as it last registered."""

    __tablename__: ClassVar[Any] = "workers"

    id: str = Field(primary_key=True)
    host: str
    pid: int
    slots: int
    inventory: dict[str, Any] = json_column()
    registered_at: float
    seen_at: float
    state: str = "active"
    """``a3r.core.types.WorkerState``."""
    pool: str | None = None
    token_name: str | None = None
    """Of the token that it registered with; empty: the workspace's shared one; None: it registered before this was kept."""


class EventTable(SQLModel, table=True):
    """One line of history; only ever added."""

    __tablename__: ClassVar[Any] = "events"

    seq: int | None = Field(default=None, primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    attempt_id: str | None = Field(default=None, foreign_key="attempts.id")
    attempt_seq: int | None = None
    at: float
    actor: str
    kind: str
    subject: str
    data: dict[str, Any] = json_column()


class DecisionTable(SQLModel, table=True):
    """What the leader decided and why."""

    __tablename__: ClassVar[Any] = "decisions"

    id: int | None = Field(default=None, primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    stage_id: str | None = Field(default=None, foreign_key="stages.id")
    what: str
    why: str
    evidence: dict[str, Any] = json_column()
    at: float


class DeviationTable(SQLModel, table=True):
    """Something done otherwise than the blueprint says."""

    __tablename__: ClassVar[Any] = "deviations"

    id: int | None = Field(default=None, primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    blueprint_id: str | None = Field(default=None, foreign_key="blueprints.id")
    attempt_id: str | None = Field(default=None, foreign_key="attempts.id")
    what: str
    data: dict[str, Any] = json_column()
    at: float


class JobTable(SQLModel, table=True):
    """Long work of the leader: a tick files it, a job does it."""

    __tablename__: ClassVar[Any] = "jobs"

    id: str = Field(primary_key=True)
    """``<campaign>/<kind>/<subject>``: the same work has the same id."""
    campaign_id: str = Field(foreign_key="campaigns.id")
    kind: str
    payload: dict[str, Any] = json_column()
    state: str
    detail: str = ""
    not_before: float = 0.0
    waiting_since: float | None = None
    tries: int = 0
    round: int = 1
    result: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    created_at: float
    updated_at: float


class LlmCallTable(SQLModel, table=True):
    """One call of a language model, written before it is made and settled before its reply is used."""

    __tablename__: ClassVar[Any] = "llm_calls"

    id: str = Field(primary_key=True)
    """``<decision>#<ordinal>``."""
    campaign_id: str = Field(foreign_key="campaigns.id")
    decision: str
    ordinal: int
    purpose: str
    model: str
    request_hash: str
    request: dict[str, Any] = json_column()
    state: str
    reserved_usd: float
    reserved_tokens: int
    cost_usd: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reply: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    error: str = ""
    at: float
    settled_at: float | None = None


class RevisionTable(SQLModel, table=True):
    """A changed client of a blueprint: what a repair made of it."""

    __tablename__: ClassVar[Any] = "revisions"

    id: str = Field(primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    blueprint_id: str = Field(foreign_key="blueprints.id")
    ordinal: int
    """Counts from 1 within the blueprint."""
    base_sha: str
    artifact_sha: str
    tree_hash: str
    diff: str
    reason: str
    evidence: dict[str, Any] = json_column()
    state: str
    by: str = ""
    at: float
    decided_at: float | None = None


class AmendmentTable(SQLModel, table=True):
    """What was added to a frozen stage plan, and why; the plan itself never changes."""

    __tablename__: ClassVar[Any] = "amendments"

    id: int | None = Field(default=None, primary_key=True)
    campaign_id: str = Field(foreign_key="campaigns.id")
    stage_id: str = Field(foreign_key="stages.id")
    changes: dict[str, Any] = json_column()
    reason: str
    by: str
    at: float


class ScheduleTable(SQLModel, table=True):
    """A goal that is started again and again."""

    __tablename__: ClassVar[Any] = "schedules"

    id: str = Field(primary_key=True)
    goal_path: str
    cron: str
    timezone: str
    options: dict[str, Any] = json_column()
    state: str
    detail: str = ""
    created_at: float
    fired_at: float | None = None
    campaign_id: str | None = None
    """The last campaign that it started."""


class HostTable(SQLModel, table=True):
    """A host that a person added."""

    __tablename__: ClassVar[Any] = "hosts"

    name: str = Field(primary_key=True)
    address: str
    options: dict[str, Any] = json_column()
    state: str
    link: str
    link_at: float
    """When the link came into that state."""
    detail: str = ""
    """Of the link and the worker, in words."""
    created_at: float
    updated_at: float


class PoolTable(SQLModel, table=True):
    """A cluster engine that is asked for workers."""

    __tablename__: ClassVar[Any] = "pools"

    name: str = Field(primary_key=True)
    kind: str
    options: dict[str, Any] = json_column()
    state: str
    detail: str = ""
    created_at: float
    updated_at: float


class PoolJobTable(SQLModel, table=True):
    """One worker that was asked of a pool."""

    __tablename__: ClassVar[Any] = "pool_jobs"

    id: str = Field(primary_key=True)
    pool: str = Field(foreign_key="pools.name")
    external_id: str = ""
    worker_id: str | None = None
    state: str
    detail: str = ""
    submitted_at: float
    ended_at: float | None = None


class WorkerTokenTable(SQLModel, table=True):
    """A worker's own token, as its hash."""

    __tablename__: ClassVar[Any] = "worker_tokens"

    name: str = Field(primary_key=True)
    token_hash: str
    worker_id: str | None = None
    """The worker that used it first; nobody else may."""
    created_at: float
    revoked_at: float | None = None


class LeaseTable(SQLModel, table=True):
    """One resource of a worker (``gpu:0``, ``slot:3``) in the hands of an attempt."""

    __tablename__: ClassVar[Any] = "leases"

    worker_id: str = Field(primary_key=True)
    resource: str = Field(primary_key=True)
    attempt_id: str = Field(foreign_key="attempts.id")
    fencing_token: int
    expires_at: float


class CommandTable(SQLModel, table=True):
    """What a worker is asked to do, with its answer."""

    __tablename__: ClassVar[Any] = "commands"

    id: int | None = Field(default=None, primary_key=True)
    worker_id: str
    attempt_id: str | None = Field(default=None, foreign_key="attempts.id")
    kind: str
    args: dict[str, Any] = json_column()
    state: str
    result: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    created_at: float
    ended_at: float | None = None
