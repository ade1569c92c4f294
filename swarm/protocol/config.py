"""The training configuration: one frozen document that ``PUT /swarm/config`` takes and a blueprint embeds.

Every field says its unit, what ``None`` means, and what it changes.
"""

from __future__ import annotations

import math
import re
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from swarm.protocol.states import CollectionPolicy, GroupRule

SHARE_SLACK = 1e-6


class Section(BaseModel):
    """A frozen section: unknown keys are refused, and so are numbers that JSON cannot carry (NaN, infinity)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelConfig(Section):
    """Which weights to serve and train."""

    path: str = "builtin:tiny-calc"
    """A folder in Hugging Face format (config.json, model.safetensors, tokenizer.json, chat_template.jinja), or ``builtin:<name>``."""
    max_model_len: int | None = Field(default=None, ge=8)
    """Tokens of prompt plus answer; None = the model's max_position_embeddings."""
    tool_parser: str | None = None
    """Named tool-call parser; None = the one that the model's config names (``a3r_tool_parser``), else ``hermes``."""
    reasoning: Literal["auto", "off"] = "auto"
    """auto: thinking (``<think>...</think>``) is told apart from the answer when the model's template knows it; off: it stays text, marks included."""


class SamplingConfig(Section):
    """Server-side bounds; the caller's own values are honoured within them."""

    max_response_tokens: int = Field(default=256, ge=1)
    """Tokens of one answer at most; a larger ``max_tokens`` of the caller is cut to this and the applied value recorded."""
    default_temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    """Used when the caller sends none; must not be 0 when ``train.greedy`` replaces by it."""
    train: TrainSampling = Field(default_factory=lambda: TrainSampling())
    volatile: tuple[str, ...] = ()
    """Regular expressions (full lines) of system text that some CLIs change on each request (dates, token counts): left out of matching and rendering, kept in the trace."""
    divergence_alarm: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of a step's calls that diverge from captured history above which the status carries a warning and an event is recorded."""

    @field_validator("volatile")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                msg = f"{pattern!r} is no regular expression: {error}"
                raise ValueError(msg) from error
        return value


class TrainSampling(Section):
    """What becomes of requests in train mode whose sampling the trainer cannot use as it is. Evaluation keeps the caller's settings."""

    greedy: Literal["default_temperature", "mask", "refuse"] = "default_temperature"
    """Temperature 0: sampled at ``sampling.default_temperature`` instead (the reply says so), sampled greedily and masked, or answered 400."""
    truncation: Literal["replay", "ignore", "refuse"] = "replay"
    """top_p, top_k, min_p, grammars: what they left possible is recorded and the loss uses that distribution; or they are left out (grammars never are: they are then masked); or answered 400."""
    max_kept: int = Field(default=1024, ge=1)
    """Token ids recorded for one position at most; a position that needs more masks its call (``sampling_not_replayable``)."""


class AlgorithmConfig(Section):
    """Advantages and loss."""

    name: Literal["grpo", "grpo_no_std", "rloo", "reinforce"] = "grpo"
    """grpo: (r - mean) / std over the group (DeepSeekMath eq. 1); grpo_no_std: r - mean (Dr.GRPO); rloo: leave-one-out; reinforce: r."""
    clip_low: float = Field(default=0.2, ge=0.0)
    clip_high: float = Field(default=0.28, ge=0.0)
    """PPO ratio clip, [1 - clip_low, 1 + clip_high]."""
    loss_aggregation: Literal["token_mean", "episode_mean"] = "token_mean"
    """token_mean: one normaliser, all trained tokens of the batch; episode_mean: mean over episodes of the mean over the episode's tokens. Neither depends on how calls were merged into rows."""
    minibatches: int = Field(default=1, ge=1)
    """Optimizer steps per batch (groups are split, never an episode)."""
    epochs: int = Field(default=1, ge=1)
    kl_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the KL penalty towards the model that training began with, per trained token (k3 estimator, Schulman 2020). 0: no reference model is kept."""


class OptimizerConfig(Section):
    """AdamW, constant learning rate."""

    lr: float = Field(default=1e-4, gt=0.0)
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    grad_clip: float = Field(default=1.0, gt=0.0)
    """Global gradient norm at most."""


class MixStage(Section):
    """Shares of the task sets from one server step on."""

    from_step: int = Field(default=0, ge=0)
    """First server step (status ``step``, from 0) that these shares hold for."""
    shares: dict[str, float]
    """task_set -> share; positive, they add up to 1 (within 1e-6)."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> MixStage:
        shares = self.shares.values()
        # One above 1 (or not a number) is wrong whatever the others are, and sums of huge ones overflow.
        sane = all(0 < share <= 1 + SHARE_SLACK for share in shares)
        if not sane or abs(math.fsum(shares) - 1.0) > SHARE_SLACK:
            msg = f"mix shares must be positive and add up to 1; sent were {self.shares!r}"
            raise ValueError(msg)
        return self


class BatchConfig(Section):
    """What one optimizer step consumes."""

    tasks: int = Field(default=8, ge=1)
    """B, groups a step (the paper's train_batch_size)."""
    repeat: int = Field(default=4, ge=1)
    """N, episodes a group."""
    policy: CollectionPolicy = CollectionPolicy.C2
    group_rule: GroupRule = GroupRule.WAIT
    oversample: float = Field(default=1.0, ge=1.0)
    """Grants of one step at most B x N x this."""
    drain_deadline_s: float = Field(default=30.0, ge=0.0)
    """ROLLING_POST waits this long for open train episodes."""
    max_groups_factor: int = Field(default=8, ge=1)
    """C2 and C3 try at most B x this groups in a step (groups that were lost or cannot train are replaced), then train on what is trainable (or advance with nothing) and say so."""
    abandon_after_s: float = Field(default=600.0, gt=0.0)
    """A group of which nobody took a missing seat for this long, although trainers are there, is dropped and replaced by another task: its player left for good."""
    mix: tuple[MixStage, ...] = ()
    """Exact shares of task sets, by server-side quotas; ``{"math": 0.4, "code": 0.6}`` is short for one stage from step 0. Empty: first come, first served. With a mix, task sets it does not name get no train grants."""
    code_change: Literal["keep", "discard"] = "keep"
    """What happens to the open step's episodes of an older client code hash when a client with a newer one registers: finished groups are kept, or discarded. Groups never mix code hashes."""

    @field_validator("mix", mode="before")
    @classmethod
    def _short_mix(cls, value: object) -> object:
        if isinstance(value, dict):
            return ({"shares": cast("object", value)},) if value else ()
        return value

    @field_validator("mix")
    @classmethod
    def _mix_in_order(cls, value: tuple[MixStage, ...]) -> tuple[MixStage, ...]:
        starts = [stage.from_step for stage in value]
        if value and (starts[0] != 0 or sorted(set(starts)) != starts):
            msg = f"mix stages must begin at step 0 and ascend; they begin at {starts!r}"
            raise ValueError(msg)
        return value


class EpisodeLimits(Section):
    """Deadlines that the server enforces, also while a call is pending."""

    idle_deadline_s: float = Field(default=120.0, gt=0.0)
    """Seconds since the last activity (grant or call) after which the episode expires."""
    total_deadline_s: float = Field(default=1800.0, gt=0.0)
    max_calls: int = Field(default=256, ge=1)
    """Calls of one episode at most; the next one is answered 400."""


GuardAction = Literal["off", "count", "mask", "zero", "drop"]
"""off: not looked for. count: only counted. mask: the call does not train. zero: the reward of the agent that made the call becomes ``guard.reward``. drop: the episode does not count, as if it had been aborted. Where several apply, the last one of this list acts."""


class GuardConfig(Section):
    """What happens to train episodes with broken answers, judged when they finish. Off by default; evaluation is never touched."""

    loop: GuardAction = "off"
    """An answer that repeats itself word by word: at least ``loop_repeats`` times, over at least ``loop_tokens`` tokens."""
    special_tokens: GuardAction = "off"
    """A control token of the model in the text of an answer (thinking and tool-call marks are not meant)."""
    unpaired_thinking: GuardAction = "off"
    """Thinking that is opened and not closed, or closed and not opened, in an answer that was not cut off."""
    broken_tool_calls: GuardAction = "off"
    """A tool call that cannot be read, of a tool that was not offered, or with arguments that are no JSON object."""
    loop_tokens: int = Field(default=64, ge=8)
    loop_repeats: int = Field(default=4, ge=2)
    reward: float = Field(default=0.0, ge=-1e9, le=1e9)
    """What ``zero`` makes of a reward."""

    def actions(self) -> dict[str, GuardAction]:
        """Return rule -> action, of the rules that are on."""
        rules: dict[str, GuardAction] = {
            "loop": self.loop,
            "special_tokens": self.special_tokens,
            "unpaired_thinking": self.unpaired_thinking,
            "broken_tool_calls": self.broken_tool_calls,
        }
        return {rule: action for rule, action in rules.items() if action != "off"}


class CheckpointConfig(Section):
    """What is kept for resuming."""

    every_steps: int = Field(default=10, ge=1)
    """A checkpoint after each k-th update and at stop_at_step; the journal replays the rest."""
    keep: int = Field(default=2, ge=1)


class EvalGate(Section):
    """Steps at which train grants wait until an evaluator closed its round."""

    at_steps: tuple[int, ...] = ()
    """Server steps (0 = before any update). With ``every_steps`` unset too: evaluation never holds training."""
    every_steps: int | None = Field(default=None, ge=1)
    """Also each step that is a multiple of this (0 included)."""
    deadline_s: float = Field(default=600.0, gt=0.0)
    """After this the gate opens by itself and the round is reported as missed; it is never counted as passed."""


class AsyncConfig(Section):
    """Asynchronous training: rolling goes on while the weights move. Off by default."""

    enabled: bool = False
    max_staleness: int = Field(default=1, ge=0)
    """Policy versions between the oldest token of an episode and the version that an update starts from, at most. Older episodes are dropped with the reason ``stale``. 0 still lets rolling overlap the update."""
    importance_cap: float = Field(default=2.0, gt=0.0)
    """Truncation of the importance weight trainer/sampler of each token (truncated importance sampling, Ionides 2008); the share of clipped tokens is a metric."""


class RolloutGpus(Section):
    """GPUs on which only replicas of the rollout run."""

    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=1, ge=1)


class VerlConfig(Section):
    """What only ``engine: verl`` reads."""

    ray_address: str | None = None
    """An existing Ray cluster, ``host:6379`` or ``auto``; None = the server starts a Ray of its own on its machine."""
    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=1, ge=1)
    """Training and rollout share these GPUs, taking turns; without a GPU (tests) processes stand for them."""
    rollout_gpus: RolloutGpus | None = None
    """GPUs of the rollout's own, beside those above, which then only train. None = they share. Needed for ``asynchronous.enabled``."""
    strategy: Literal["fsdp2", "megatron"] = "fsdp2"
    """How the weights are cut over GPUs."""
    rollout: Literal["vllm", "sglang"] = "vllm"
    loss: str = Field(default="vanilla", min_length=1)
    """A policy loss of verl by its name (``vanilla`` is the clipped loss of ``engine: torch``); its own keys go into ``options``."""
    adv_estimator: str | None = Field(default=None, min_length=1)
    """One of verl's advantage estimators by its name, over the rewards of the step's groups (``gae`` also trains a value model). None: ``algorithm.name``, as with ``engine: torch``; it also decides which groups can train."""
    options: dict[str, JsonValue] = {}
    """verl's own keys, nested or dotted (``actor_rollout_ref.rollout.tensor_model_parallel_size: 2``), checked against the installed verl when the engine boots. What another section says is said there and refused here."""


class TrainConfig(Section):
    """Everything the engine and the service need for one training run."""

    run_name: str = "run"
    seed: int = 0
    """Keys the sampling noise and the order of data."""
    engine: Literal["torch", "verl", "toy"] = "torch"
    """torch: embedded, CPU or one GPU. verl: Ray, FSDP2 and vLLM, from one node to many. toy: no learning, for tests without torch."""
    model: ModelConfig = ModelConfig()
    sampling: SamplingConfig = SamplingConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    episode: EpisodeLimits = EpisodeLimits()
    guard: GuardConfig = GuardConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    eval_gate: EvalGate = EvalGate()
    asynchronous: AsyncConfig = AsyncConfig()
    verl: VerlConfig = VerlConfig()
    engine_hang_s: float = Field(default=300.0, gt=0.0)
    """An engine process that is alive and says nothing for this long (it beats while it samples, trains and saves) is killed and replaced."""
    match: Literal["token", "text"] = "token"
    """How calls merge into rows: by token prefix (exact) or by message text (splices captured ids)."""
    stop_at_step: int = Field(default=40, ge=1)
    """Steps after which the server is TRAINED and its weights frozen."""
