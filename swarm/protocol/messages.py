"""Requests and replies of the control routes (``/swarm/...``). Wire messages tolerate unknown fields."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from swarm.protocol.states import (
    EngineState,
    EpisodeKind,
    EpisodeState,
    FateReason,
    GrantOutcome,
    Role,
    TokenFate,
)


class Message(BaseModel):
    """A wire message: unknown fields are ignored, so that old and new versions can talk."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PolicyVersion(Message):
    """``n`` optimizer moves since ``incarnation`` began (a fresh start of training, not a restart of a process)."""

    incarnation: str
    n: int


class Status(Message):
    """Answer of ``GET /swarm/status``. With ``?after_step=s&wait_s=t`` it is held until ``step > s`` or t seconds passed."""

    state: EngineState
    step: int
    """Steps completed. Step k consumes batch k; a step without a trainable group advances ``step`` only."""
    policy_version: PolicyVersion | None = None
    stop_at_step: int | None = None
    model: str | None = None
    fingerprint: str | None = None
    """sha256 of the served weights (hex, 16 digits)."""
    waiting_for: str = ""
    """Who waits on what, in words."""
    failure: str | None = None
    """Why the engine is OFFLINE or was restarted last; None = never failed."""
    engine_restarts: int = 0
    open_episodes: int = 0
    pid: int = 0
    version: str = ""


class ConfigChange(Message):
    """One changed key of ``PUT /swarm/config``."""

    key: str
    old: Any = None
    new: Any = None


class ClientRegistration(Message):
    """Body of ``POST /swarm/clients``."""

    client_id: str = Field(min_length=1, max_length=128)
    """Chosen by the client; registering the same id again is a restart and aborts its open episodes."""
    role: Role = Role.TRAINER


class ClientLease(Message):
    """Answer of register and heartbeat; the client must heartbeat before the lease ends."""

    client_id: str
    lease_s: float
    status: Status


class GrantRequest(Message):
    """Body of ``POST /swarm/episodes``."""

    client_id: str
    kind: EpisodeKind = EpisodeKind.TRAIN
    task_set: str = "default"
    task_id: str
    wait_s: float = Field(default=0.0, ge=0.0, le=60.0)
    """Hold the request up to this long when nothing is needed at the moment."""
    step: int | None = None
    """Grant only in this server step; None = whichever is open. (run_episodes pins the step it planned for.)"""
    idle_deadline_s: float | None = Field(default=None, gt=0.0)
    """Shorter or longer than the config's, for this episode; None = the config's. Debug episodes pass a very large one."""
    request_id: str = Field(default="", max_length=64)
    """Names this asking. The same one again (its answer was lost) gets the same episode while that is open; empty = always a new one."""


class Grant(Message):
    """Answer of ``POST /swarm/episodes``."""

    outcome: GrantOutcome
    step: int
    policy_version: PolicyVersion | None = None
    episode_id: str = ""
    api_key: str = ""
    base_url: str = ""
    """``http(s)://<address the client dialled>/v1``."""
    group_id: str = ""
    repeat_index: int = 0
    """0..N-1 within the group."""
    reason: str = ""
    """Why WAIT was answered."""


class FinishRequest(Message):
    """Body of ``POST /swarm/episodes/{id}/finish``. Idempotent: the first finish wins, a repeat gets the same reply."""

    reward: float | None = None
    """Required for train episodes; must be finite (422 otherwise). Eval episodes may leave it out."""
    metrics: dict[str, float] = Field(default_factory=dict[str, float])


class FinishReply(Message):
    """What became of the episode."""

    episode_id: str
    state: EpisodeState
    accepted: bool
    """True when the episode entered the pool (train) or the eval record."""
    reason: str = ""
    """Why it was not accepted, with the version it missed."""
    step: int


class AbortRequest(Message):
    """Body of ``POST /swarm/episodes/{id}/abort``. Idempotent."""

    reason: str = ""


class WantedTask(Message):
    """A group of the open step with missing members."""

    task_set: str
    task_id: str
    missing: int


class PoolSnapshot(Message):
    """Answer of ``GET /swarm/pool``: what the open step has and needs."""

    step: int
    policy_version: PolicyVersion | None
    state: EngineState
    tasks_target: int
    """B."""
    repeat: int
    """N."""
    groups_complete: int
    groups_open: int
    groups_to_open: int
    """New groups that the server would grant now."""
    episodes_finished: int
    episodes_open: int
    wanted: list[WantedTask]
    task_ids: list[str]
    """``task_set/task_id`` of every group of the open step, in order of opening."""


class StepMetrics(Message):
    """One record a completed step (``GET /swarm/metrics?after_step=``). Missing is None, never 0."""

    step: int
    policy_version: int
    updated: bool
    """False when nothing was trainable."""
    groups: int
    episodes: int
    reward_mean: float | None
    reward_std: float | None
    zero_advantage_share: float | None
    """Share of the consumed episodes in groups whose rewards are all equal."""
    turns_mean: float | None
    truncated_share: float | None
    """Share of calls that ended by length."""
    response_tokens_mean: float | None
    loss: float | None
    grad_norm: float | None
    clip_fraction: float | None
    entropy: float | None
    logprob_gap_max: float | None
    """Largest |trainer - sampler| log-probability over trained tokens (before the update)."""
    tokens: dict[str, int]
    """Account of every sampled token of the step, ``"trained"`` or ``"<fate>:<reason>"`` -> count."""
    rows: int
    calls: int
    episodes_dropped: dict[str, int]
    """Reason -> count, leftovers and failures of the step."""
    divergences: int
    """Calls whose prompt did not extend what the server had sampled."""
    fingerprint: str
    rollout_s: float
    drain_s: float
    update_s: float
    sampling_cpu_s: float | None
    update_cpu_s: float | None
    front_cpu_s: float | None
    finished_at: float
    """Unix seconds."""
    rolled_back: str = ""
    """Why the engine undid this update (``updated`` is then False); empty = it did not."""
    eval_round: str = ""
    """The gated eval round before this step: ``closed``, ``incomplete`` or ``missed``; empty = no round was closed or missed for this step."""


class CallRecord(Message):
    """One captured call."""

    index: int
    """Order of commitment within the episode."""
    policy_version: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    reply: dict[str, Any]
    """The assistant message as returned."""
    finish_reason: str
    prompt_ids: list[int]
    sampled_ids: list[int]
    logprobs: list[float]
    """Same length as sampled_ids, natural log, at the applied temperature."""
    temperature: float
    max_tokens: int
    """As applied."""
    requested: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Sampling values as the caller sent them."""
    fate: TokenFate | None = None
    fate_reason: FateReason = FateReason.NONE


class EpisodeTrace(Message):
    """Answer of ``GET /swarm/episodes/{id}/trace`` (``GET /swarm/episodes/{id}`` is the same without calls)."""

    episode_id: str
    kind: EpisodeKind
    state: EpisodeState
    client_id: str
    task_set: str
    task_id: str
    group_id: str
    repeat_index: int
    step: int
    policy_version: int
    """At grant."""
    reward: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    reason: str = ""
    granted_at: float
    ended_at: float | None = None
    calls: list[CallRecord] = Field(default_factory=list[CallRecord])
    call_count: int = 0


class EvalRoundClose(Message):
    """Body of ``POST /swarm/evals``: an evaluator closes the round of a gated step (or just records it)."""

    step: int
    planned: int
    completed: int


class Event(Message):
    """One line of ``GET /swarm/events`` (SSE) and of the journal."""

    seq: int
    at: float
    kind: str
    data: dict[str, Any] = Field(default_factory=dict[str, Any])


class CheckpointInfo(Message):
    """One saved checkpoint."""

    step: int
    policy_version: int
    path: str
    fingerprint: str
