"""The jobs of this package by kind, for the daemon's job runner."""

from __future__ import annotations

from a3r.leader.clients import remedy, sourcing
from a3r.leader.clients.repairing import repair_client
from a3r.leader.clients.writing import write_client
from a3r.leader.jobs import Handler


def client_handlers() -> dict[str, Handler]:
    """``write_client`` and ``repair``."""
    return {sourcing.KIND: write_client, remedy.KIND: repair_client}
