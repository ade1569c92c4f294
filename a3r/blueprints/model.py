"""The blueprint: one experiment, complete enough to run it and to say afterwards whether it came out as predicted."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from a3r.core.hashing import canonical_json, content_hash
from a3r.core.types import Direction
from swarm.protocol.config import TrainConfig


class Section(BaseModel):
    """A frozen part of a blueprint; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSpec(Section):
    """One swarm server of the experiment."""

    name: str = "policy"
    train: TrainConfig
    """The swarm's own schema; ``seed`` and ``run_name`` are overwritten by the run's."""
    gpus: int = Field(default=0, ge=0)
    model_fingerprint: str = ""
    """sha256 (16 hex) of the base weights, filled in when the blueprint is made."""


class ClientSpec(Section):
    """One swarm client of the experiment."""

    name: str = "client"
    template: str
    """Name of the template that it was generated from."""
    tree_hash: str
    """``a3r.core.hashing.tree_hash`` of the client folder; the code exists before review."""
    entry: str = "client.py"
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Passed to the client as JSON."""
    server: str = "policy"
    on_failure: Literal["restart", "ignore", "fail"] = "restart"


class EvaluatorSpec(Section):
    """The sealed evaluator: items and scoring that the client can not touch."""

    task: str
    """Registered task, e.g. ``calculator``."""
    items: int = Field(ge=1)
    """Held-out items a round."""
    item_seed: int = 0
    item_set_hash: str
    source_hash: str
    """Hash of the scoring code."""
    rounds: tuple[Literal["initial", "final"] | str, ...] = ("initial", "final")


class MetricSpec(Section):
    """The primary metric."""

    name: str = "held_out_reward"
    direction: Direction = Direction.MAXIMIZE
    protocol: str = ""
    """How it is measured, in words."""


class Limits(Section):
    """When a run is stopped or tried again."""

    max_time_s: float = Field(default=900.0, gt=0)
    first_step_deadline_s: float = Field(default=180.0, gt=0)
    stall_deadline_s: float = Field(default=180.0, gt=0)
    max_attempts: int = Field(default=2, ge=1)
    max_client_restarts: int = Field(default=3, ge=0)
    max_server_restarts: int = Field(default=3, ge=0)


class Resources(Section):
    """What one attempt takes."""

    slots: int = Field(default=1, ge=1)
    gpus: int = Field(default=0, ge=0)


class Blueprint(Section):
    """One experiment. ``seeds`` are the planned replicates; a run is blueprint x seed."""

    schema_version: Literal[1] = 1
    name: str
    """Unique within the campaign, e.g. ``s1-b16-cap10``."""
    purpose: str
    hypothesis: str = ""
    predicted_outcome: str = ""
    factors: dict[str, Any]
    """What differs from its siblings, e.g. {"train_batch_size": 16, "max_response_tokens": 10}."""
    fixed: dict[str, Any] = Field(default_factory=dict[str, Any])
    servers: tuple[ServerSpec, ...]
    clients: tuple[ClientSpec, ...]
    external_models: tuple[str, ...] = ()
    evaluator: EvaluatorSpec
    metric: MetricSpec = MetricSpec()
    seeds: tuple[int, ...]
    limits: Limits = Limits()
    resources: Resources = Resources()
    secret_names: tuple[str, ...] = ()
    notes: str = ""

    @model_validator(mode="after")
    def _only_json(self) -> Blueprint:
        """Refuse NaN, infinity and whatever else JSON lacks: a dump would turn NaN into null without a word."""
        try:
            canonical_json([self.factors, self.fixed, [c.arguments for c in self.clients]])
        except (TypeError, ValueError) as err:
            msg = f"factors, fixed and arguments hold JSON values only: {err}"
            raise ValueError(msg) from err
        return self

    def content_hash(self) -> str:
        """Hash of everything: what an approval binds to."""
        return content_hash(self.model_dump(mode="json"))

    def cell_hash(self) -> str:
        """Hash of what decides the distribution of results: factors, fixed, servers, client trees, evaluator.

        No seeds, no prose, no limits: replicates of one cell, also across stages, share it and may be pooled.
        """
        body = self.model_dump(mode="json")
        servers = [
            {
                **server,
                "train": {
                    k: v for k, v in server["train"].items() if k not in ("seed", "run_name")
                },
            }
            for server in body["servers"]
        ]
        clients = [
            {k: c[k] for k in ("tree_hash", "entry", "arguments", "server")}
            for c in body["clients"]
        ]
        return content_hash(
            {
                "factors": body["factors"],
                "fixed": body["fixed"],
                "servers": servers,
                "clients": clients,
                "evaluator": body["evaluator"],
            }
        )
