"""The blueprint: one experiment, complete enough to run it and to say afterwards whether it came out as predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from a3r.core.hashing import canonical_json, content_hash
from a3r.core.types import Direction
from swarm.protocol.config import TrainConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")]
"""Of a server or client: part of the names of files, logs and windows."""


CELL_FORMAT = 2
CELL_PARTS = ("factors", "fixed", "servers", "evaluator", "stop_rules", "external_models")
CLIENT_PARTS = ("tree_hash", "entry", "arguments", "server", "environment")
"""Of a blueprint and of its clients: what decides the distribution of results."""


class Section(BaseModel):
    """A frozen part of a blueprint; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EnvironmentSpec(Section):
    """Where a process runs; a worker makes it ready and records what it found (docs/concepts/environments)."""

    kind: Literal["inherit", "python", "venv", "container"] = "inherit"
    """inherit: the worker's own interpreter. python: ``python`` on the host. venv: made for ``requirements``. container: ``image``."""
    python: str = ""
    requirements: tuple[str, ...] = ()
    image: str = ""
    proxy: str = ""
    """URL for HTTP(S)_PROXY of this process; swarm servers on loopback are never proxied."""
    variables: dict[str, str] = Field(default_factory=dict[str, str])
    """Plain settings, never secrets."""
    secret_names: tuple[str, ...] = ()
    """Environment variables whose values are resolved on the host when the process starts."""


class SandboxSpec(Section):
    """Walls around generated code; what was and was not enforced is recorded with the attempt."""

    mode: Literal["auto", "required", "off"] = "auto"
    """auto: as far as the host allows. required: an attempt without it fails. off: none."""
    memory_mb: int | None = Field(default=None, ge=64)
    processes: int = Field(default=512, ge=1)
    open_files: int = Field(default=4096, ge=64)
    file_mb: int | None = Field(default=None, ge=1)
    hosts: tuple[str, ...] = ()
    """Names (or ``name:port``) that the process may reach besides its swarm servers, where the platform can tell them apart."""
    readable: tuple[str, ...] = ()
    """Folders and files with data that it may read besides its code."""


def _refuse_server(data: object, what: str) -> None:
    """Refuse a section that names a server: with several of them one could think that it is looked at."""
    if isinstance(data, Mapping) and "server" in data:
        named = cast("Mapping[str, Any]", data)["server"]
        msg = f"{what} the first server of the blueprint and cannot name another ({named!r}): leave 'server' out, or put that server first"
        raise ValueError(msg)


class StopRule(Section):
    """When a run ends before ``stop_at_step``: part of the blueprint, so approved before anything ran.

    Of several servers the first one's steps are looked at.
    """

    metric: Literal["reward_mean", "entropy", "grad_norm", "kl", "truncated_share"]
    """Of the steps' own metrics; the held-out metric is never looked at."""
    when: Literal["above", "below", "not_finite"]
    value: float = 0.0
    steps: int = Field(default=5, ge=1)
    """In a row."""
    outcome: Literal["stop", "fail"] = "stop"
    """stop: the final evaluation still runs, the record says at which step. fail: the run has no result."""
    reason: str = ""

    @model_validator(mode="before")
    @classmethod
    def _looks_at_the_first(cls, data: Any) -> Any:
        _refuse_server(data, "a stop rule looks at the steps of")
        return data


class ServerSpec(Section):
    """One swarm server of the experiment."""

    name: Name = "policy"
    train: TrainConfig
    """The swarm's own schema; ``seed`` and ``run_name`` are overwritten by the run's."""
    gpus: int = Field(default=0, ge=0)
    model_fingerprint: str = ""
    """sha256 (16 hex) of the base weights, filled in when the blueprint is made."""
    environment: EnvironmentSpec = EnvironmentSpec()
    trains: bool = True
    """False: it only answers (a judge, an opponent); no client may train it, and nobody waits for its steps. Not for the first."""


class ClientSpec(Section):
    """One swarm client of the experiment."""

    name: Name = "client"
    template: str
    """Name of the template that it was generated from."""
    tree_hash: str
    """``a3r.core.hashing.tree_hash`` of the client folder; the code exists before review."""
    entry: str = "client.py"
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Passed to the client as JSON."""
    server: str = "policy"
    """Name of the server that it is for; it is told of all of them."""
    on_failure: Literal["restart", "ignore", "fail"] = "restart"
    trainer_log: Literal["", "verl", "trl", "lightning"] = ""
    """The trainer whose log lines its output holds: their steps are read from there and kept with the attempt."""
    environment: EnvironmentSpec = EnvironmentSpec()
    sandbox: SandboxSpec = SandboxSpec()


class EvaluatorSpec(Section):
    """The sealed evaluator: items and scoring that the client can not touch."""

    task: str
    """Registered task, e.g. ``calculator``."""
    items: int = Field(ge=1)
    """Held-out items a round."""
    item_seed: int = 0
    item_set_hash: str
    source_hash: str
    """Hash of the scoring code; of a sealed evaluator: its folder's tree hash."""
    artifact: str = ""
    """sha256 of a tar of the sealed evaluator's folder (``evaluation.py`` and its data); empty: a registered task."""
    rounds: tuple[Literal["initial", "final"] | str, ...] = ("initial", "final")

    @model_validator(mode="before")
    @classmethod
    def _scores_the_first(cls, data: Any) -> Any:
        _refuse_server(data, "the evaluator's rounds score")
        return data


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
    stop_rules: tuple[StopRule, ...] = ()
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

    @model_validator(mode="after")
    def _names_tell_apart(self) -> Blueprint:
        """Refuse servers or clients of one name, and a client of a server that there is not."""
        for what, names in (
            ("servers", [s.name for s in self.servers]),
            ("clients", [c.name for c in self.clients]),
        ):
            # Logs and folders are named after them, and not every file system tells case apart.
            if len({name.lower() for name in names}) != len(names):
                msg = f"{what} have names of their own, not {names}"
                raise ValueError(msg)
        if self.servers and not self.servers[0].trains:
            raise ValueError("the first server is the one that is trained and evaluated")
        known = {s.name for s in self.servers}
        lost = [c.name for c in self.clients if c.server not in known]
        if len(self.servers) > 1 and lost:
            msg = f"the client {lost[0]!r} names none of the servers {sorted(known)}"
            raise ValueError(msg)
        return self

    def with_client(self, tree_hash: str) -> Blueprint:
        """The same experiment with other code of the first client, as after a repair. What was approved is this object, not that one.

        Further clients that are entries of the same folder change with it.
        """
        old = self.clients[0].tree_hash
        clients = [
            c.model_copy(update={"tree_hash": tree_hash}) if c.tree_hash == old else c
            for c in self.clients
        ]
        return self.model_copy(update={"clients": tuple(clients)})

    def content_hash(self) -> str:
        """Hash of everything: what an approval binds to."""
        return content_hash(self.model_dump(mode="json"))

    def cell_hash(self) -> str:
        """Hash of what decides the distribution of results: factors, fixed, servers, client trees, evaluator.

        No seeds, no prose, no limits, no sandbox: replicates of one cell, also across stages, share it and may be pooled.
        """
        # What is as by default is left out: a setting that a later version adds moves no hash, so old replicates stay
        # replicates. A default that changes is another experiment: count CELL_FORMAT up with it.
        body = self.model_dump(mode="json", exclude_defaults=True)
        for server in body["servers"]:
            server["train"] = _without(server.get("train", {}), ("seed", "run_name"))
        shown = {name: body.get(name) for name in CELL_PARTS}
        clients = [{k: c[k] for k in CLIENT_PARTS if k in c} for c in body["clients"]]
        return content_hash({"format": CELL_FORMAT, **shown, "clients": clients})


def _without(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in names}
