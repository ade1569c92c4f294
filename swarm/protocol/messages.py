"""The wire message and what is said of a run: its status, changes, events, checkpoints.

Other nouns have their own modules: ``clients``, ``episodes``, ``pool``, ``records``. All tolerate unknown fields.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from swarm.protocol.states import ConfigEffect, EngineState

LARGEST = 2**63 - 1
"""Largest number of a record that the journal keeps."""


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
    server_id: str = ""
    """Of this state folder, for good: swarm groups take servers in the order of their ids."""
    controller: str = ""
    """Client id that holds the controller lease; empty = nobody does."""
    warnings: list[str] = Field(default_factory=list[str])
    """What a person should look at now (a disk that is full, a gate that was missed); empty = nothing."""
    updating: bool = False
    """Asynchronous mode: an update runs while rolling goes on."""


class ConfigChange(Message):
    """One changed key of ``PUT /swarm/config``."""

    key: str
    """Dotted: ``optimizer.lr``."""
    old: Any = None
    new: Any = None
    effect: ConfigEffect = ConfigEffect.RUN
    """What it takes for the change to hold; ``STEP`` changes were accepted and wait for the next step boundary."""


class ConfigRecord(Message):
    """One line of ``GET /swarm/config/changes``: a change of the present run's configuration, in order of acceptance."""

    step: int
    """Status step from which it holds; one that is larger than the server's waits."""
    at: float
    """Unix seconds of acceptance."""
    who: str
    """Client id that the asker gave itself, else the power of its token."""
    changes: list[ConfigChange]


class EvalRoundClose(Message):
    """Body of ``POST /swarm/evals``: an evaluator closes the round of a gated step (or just records it)."""

    step: int = Field(ge=0, le=LARGEST)
    planned: int = Field(ge=0, le=LARGEST)
    completed: int = Field(ge=0, le=LARGEST)


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
