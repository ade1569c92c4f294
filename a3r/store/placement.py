"""Which queued attempt a worker may have, and the leases on the GPUs that it is given. Part of the claim's transaction."""

from __future__ import annotations

from sqlmodel import Session, col, select

from a3r.blueprints.model import Blueprint
from a3r.core.placement import Need, Offer, could_ever_fit
from a3r.core.types import TERMINAL_ATTEMPTS
from a3r.store.tables import AttemptTable, LeaseTable, WorkerTable

RESERVE_AFTER_S = 600.0
"""An attempt that waited so long for a host which could hold it is not overtaken there any more: large ones do not starve."""
_FINAL = [state.value for state in TERMINAL_ATTEMPTS]


def need_of(blueprint: Blueprint) -> Need:
    """What one attempt of the blueprint takes: its own figures, or what its servers ask for together if that is more."""
    servers = sum(server.gpus for server in blueprint.servers)
    return Need(blueprint.resources.slots, max(blueprint.resources.gpus, servers))


def leased_gpus(session: Session, worker_id: str) -> set[int]:
    """GPUs of the worker that live attempts hold."""
    found = session.exec(
        select(LeaseTable.resource)
        .join(AttemptTable, col(AttemptTable.id) == col(LeaseTable.attempt_id))
        .where(LeaseTable.worker_id == worker_id, col(AttemptTable.state).not_in(_FINAL))
    ).all()
    return {int(r.removeprefix("gpu:")) for r in found if r.startswith("gpu:")}


def keeps_free(session: Session, worker_id: str, need: Need, waited_s: float) -> bool:
    """Whether the worker must stay free for an attempt that does not fit now."""
    if waited_s < RESERVE_AFTER_S:
        return False
    worker = session.get(WorkerTable, worker_id)
    return worker is not None and could_ever_fit(need, worker.slots, worker.inventory)


def take(
    session: Session, attempt: AttemptTable, need: Need, offer: Offer, expires_at: float
) -> None:
    """Write the leases of a claimed attempt and what it was given; its fencing token and worker must be set."""
    given = list(offer.gpus[: need.gpus])
    for gpu in given:
        resource = f"gpu:{gpu}"
        stale = session.get(LeaseTable, (attempt.worker_id, resource))
        if stale is not None:  # of an attempt that is over
            session.delete(stale)
            session.flush()
        session.add(
            LeaseTable(
                worker_id=str(attempt.worker_id),
                resource=resource,
                attempt_id=attempt.id,
                fencing_token=attempt.fencing_token,
                expires_at=expires_at,
            )
        )
    attempt.placement = {"gpus": given, "co_tenants": [dict(c) for c in offer.co_tenants]}


def extend(session: Session, attempt: AttemptTable, expires_at: float) -> None:
    """Renew the leases of an attempt together with its own."""
    for lease in _of(session, attempt):
        lease.expires_at = expires_at
        session.add(lease)


def release(session: Session, attempt: AttemptTable) -> None:
    """Give the leases of an ended attempt back. Whether the GPU is free is measured by the worker before it offers it again."""
    for lease in _of(session, attempt):
        session.delete(lease)


def _of(session: Session, attempt: AttemptTable) -> list[LeaseTable]:
    return list(session.exec(select(LeaseTable).where(LeaseTable.attempt_id == attempt.id)))
