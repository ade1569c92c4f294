"""One id, one worker. A copied folder (an image, a cloned disk) would bring a second one, and both would be given the same attempts."""

from __future__ import annotations

from a3r.core.errors import Conflict
from a3r.core.wire import WorkerRegistration
from a3r.hub.state import Hub

SEAT = "seat"
"""In the inventory: says where a worker's folder lies, and nothing else. Its lock lets one worker in there; a restart has the same."""


def refuse_second(hub: Hub, request: WorkerRegistration) -> None:
    """Refuse a worker whose id is that of another one that speaks, from another seat.

    After a daemon's start nobody has spoken yet: the one that registered last is given the time of a lease to come back.

    Raises:
        Conflict: there is such a worker.
    """
    seat, now = request.inventory.get(SEAT), hub.clock.time()
    known = hub.store.worker(request.worker_id)
    if not seat or known is None or known.inventory.get(SEAT) in (None, seat):
        return
    heard = hub.heard.get(request.worker_id, max(known.seen_at, hub.settings.started_at))
    if now - heard < hub.settings.lease_s:
        raise Conflict(
            f"A worker with the id {request.worker_id!r} is at work on {known.host!r}: "
            "this one's folder must be a copy of that one's.",
            hint="Delete worker/worker.json in the copy's .a3r: it gets an id of its own. If the other one is gone, wait.",
        )
