"""Settings of one hub process, resolved by whoever starts it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class HubSettings(BaseModel):
    """Frozen; times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace: Path
    """The ``.a3r`` folder that this hub serves."""
    epoch: str
    """Random; changes with every start of the process."""
    started_at: float
    """Unix seconds. Leases count no time before it: a hub that was away must not blame the workers."""
    heartbeat_s: float = Field(default=2.0, gt=0)
    lease_s: float = Field(default=15.0, gt=0)
    lost_after_s: float = Field(default=60.0, ge=0)
    """Time after the lease's end, with the hub up, until an unreachable attempt is given up."""
    max_wait_s: float = Field(default=30.0, ge=0)
    """Longest long poll, whatever was asked for."""
    max_body_bytes: int = Field(default=64 * 2**20, gt=0)
