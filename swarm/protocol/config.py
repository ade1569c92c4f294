"""The training configuration: one frozen document that ``PUT /swarm/config`` takes and a blueprint embeds.

Every field says its unit, what ``None`` means, and what it changes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from swarm.protocol.states import CollectionPolicy, GroupRule


class Section(BaseModel):
    """A frozen section: unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    """Which weights to serve and train."""

    path: str = "builtin:tiny-calc"
    """A folder in Hugging Face format (config.json, model.safetensors, tokenizer.json, chat_template.jinja), or ``builtin:<name>``."""
    max_model_len: int | None = Field(default=None, ge=8)
    """Tokens of prompt plus answer; None = the model's max_position_embeddings."""
    tool_parser: str | None = None
    """Named tool-call parser; None = the one that the model's config names (``a3r_tool_parser``), else ``hermes``."""


class SamplingConfig(Section):
    """Server-side bounds; the caller's own values are honoured within them."""

    max_response_tokens: int = Field(default=256, ge=1)
    """Tokens of one answer at most; a larger ``max_tokens`` of the caller is cut to this and the applied value recorded."""
    default_temperature: float = Field(default=1.0, ge=0.0)
    """Used when the caller sends none."""


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


class OptimizerConfig(Section):
    """AdamW, constant learning rate."""

    lr: float = Field(default=1e-4, gt=0.0)
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    grad_clip: float = Field(default=1.0, gt=0.0)
    """Global gradient norm at most."""


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


class EpisodeLimits(Section):
    """Deadlines that the server enforces, also while a call is pending."""

    idle_deadline_s: float = Field(default=120.0, gt=0.0)
    """Seconds since the last activity (grant or call) after which the episode expires."""
    total_deadline_s: float = Field(default=1800.0, gt=0.0)
    max_calls: int = Field(default=256, ge=1)
    """Calls of one episode at most; the next one is answered 400."""


class CheckpointConfig(Section):
    """What is kept for resuming."""

    every_steps: int = Field(default=10, ge=1)
    """A checkpoint after each k-th update and at stop_at_step; the journal replays the rest."""
    keep: int = Field(default=2, ge=1)


class EvalGate(Section):
    """Steps at which train grants wait until an evaluator closed its round."""

    at_steps: tuple[int, ...] = ()
    """Server steps (0 = before any update). Empty: evaluation never holds training."""
    deadline_s: float = Field(default=600.0, gt=0.0)
    """After this the gate opens by itself and the round is reported as missed; it is never counted as passed."""


class TrainConfig(Section):
    """Everything the engine and the service need for one training run."""

    run_name: str = "run"
    seed: int = 0
    """Keys the sampling noise and the order of data."""
    engine: Literal["torch", "toy"] = "torch"
    """torch: embedded, CPU or one GPU. toy: no learning, for tests without torch."""
    model: ModelConfig = ModelConfig()
    sampling: SamplingConfig = SamplingConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    batch: BatchConfig = BatchConfig()
    episode: EpisodeLimits = EpisodeLimits()
    checkpoint: CheckpointConfig = CheckpointConfig()
    eval_gate: EvalGate = EvalGate()
    match: Literal["token", "text"] = "token"
    """How calls merge into rows: by token prefix (exact) or by message text (splices captured ids)."""
    stop_at_step: int = Field(default=40, ge=1)
    """Steps after which the server is TRAINED and its weights frozen."""

    @model_validator(mode="after")
    def _only_policies_that_exist(self) -> TrainConfig:
        if self.batch.policy in (CollectionPolicy.C4, CollectionPolicy.C5):
            msg = f"batch.policy {self.batch.policy.value!r} is not served yet: choose one of 'C1', 'C2', 'C3'"
            raise ValueError(msg)
        return self
