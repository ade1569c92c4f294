"""What is kept: the metrics of a step, the trace of an episode and each of its calls."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from swarm.protocol.messages import Message
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason, TokenFate


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
    guarded: int = 0
    """Control tokens that messages of the step's calls spelled, rendered as plain text (each counted once)."""
    context_overflows: int = 0
    """Calls that were refused because their prompt was too long."""
    fingerprint: str
    rollout_s: float
    drain_s: float
    update_s: float
    sampling_cpu_s: float | None
    update_cpu_s: float | None
    front_cpu_s: float | None
    finished_at: float
    """Unix seconds."""
    lr: float | None = None
    """Learning rate of this update."""
    kl: float | None = None
    """Mean k3 estimate of KL(policy, reference) over trained tokens; None = no reference model."""
    staleness_mean: float | None = None
    """Policy versions between sampling and this update's start, mean over trained tokens; None = nothing trained."""
    staleness_max: int | None = None
    importance_clipped_share: float | None = None
    """Share of trained tokens whose importance weight was truncated; None = synchronous."""
    task_sets: dict[str, int] = Field(default_factory=dict[str, int])
    """Consumed groups (C1: episodes) per task set."""
    agents: dict[str, float] = Field(default_factory=dict[str, float])
    """Mean reward per agent, when episodes had agents."""
    agent_tokens: dict[str, dict[str, int]] = Field(default_factory=dict[str, dict[str, int]])
    """``tokens`` per agent (``""``: calls with an episode's own key; without evaluation), when episodes had agents."""
    clients: dict[str, int] = Field(default_factory=dict[str, int])
    """Consumed episodes per client."""
    groups_tried: int = 0
    mix_owed: dict[str, float] = Field(default_factory=dict[str, float])
    """Under a mix: what each task set is behind (positive) or ahead of its exact share after this step, in groups (C1: episodes)."""
    members_missing: int = 0
    """Seats of the consumed groups that held no episode (rule ``partial``)."""
    agreed: list[str] = Field(default_factory=list[str])
    """C4 and C5: client ids that agreed to take this step."""
    rolled_back: str = ""
    """Why the engine undid this update (``updated`` is then False); empty = it did not."""
    eval_round: str = ""
    """The gated eval round before this step: ``closed``, ``incomplete`` or ``missed``; empty = no round was closed or missed for this step."""
    guard: dict[str, int] = Field(default_factory=dict[str, int])
    """Episode guard: ``<rule>:<action>`` -> train episodes of the step in which it spoke; empty = nothing was found, or it is off."""
    eval_overlap: int | None = None
    """Consumed groups whose first prompt an evaluation episode had shown to this server process before; None = it has seen none."""


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
    agent: str = ""
    """Whose key made the call."""
    tag: str = ""
    """As the client tagged it."""
    excluded: bool = False
    """The client asked that it never trains (``excluded_call``)."""
    dialect: str = "chat"
    applied: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Sampling beyond temperature and max_tokens, as applied; empty = none."""
    kept: list[list[int]] = Field(default_factory=list[list[int]])
    """What truncation left possible at each sampled token (``swarm.server.ports.Chunk.kept``); empty = no truncation."""
    replayable: bool = True
    """False: its log-probabilities cannot be computed again, so that it never trains (``sampling_not_replayable``)."""
    unknown: list[str] = Field(default_factory=list[str])
    """Parameters of the request that this server does not know."""
    raw_request: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The request as it came, when what was rendered differs from it (volatile lines left out); else empty."""
    choice: int = 0
    """Which of the ``n`` choices of its request."""
    guarded: int = 0
    """Control tokens that messages of this call spelled and that were rendered as plain text; those of captured history are its own calls'."""
    parent: int | None = None
    """Index of the call that this one continues."""
    token_versions: list[int] = Field(default_factory=list[int])
    """Policy version of each sampled token when the weights were swapped under the call; empty = all ``policy_version``."""
    advantages: list[float] = Field(default_factory=list[float])
    """Per sampled token, as trained; empty = not trained, or not known any more."""
    token_mask: list[bool] = Field(default_factory=list[bool])
    """False = this token did not train although its call did (``client_mask``); empty = all alike."""
    guard: list[str] = Field(default_factory=list[str])
    """What the episode guard found in the answer and did about it, ``<rule>:<action>``; empty = nothing, or it is off."""


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
    agents: dict[str, bool] = Field(default_factory=dict[str, bool])
    """Agent -> whether it trains."""
    rewards: dict[str, float] = Field(default_factory=dict[str, float])
    """Per agent, where told."""
    code_hash: str = ""
    consumed_step: int | None = None
    """The step that consumed it; None = none (yet)."""
    context_overflows: int = 0
    """Calls that were refused because their prompt was too long; above 0 the episode was truncated, whatever its reward."""
