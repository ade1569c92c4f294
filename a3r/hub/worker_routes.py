"""``/worker/v1``: registration, claims, heartbeats and evidence of workers. The messages are ``a3r.core.wire``.

Every write carries the attempt's fencing token; the store refuses stale ones, which reaches the worker as 409.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi import Path as PathParam
from starlette.responses import Response

from a3r.core.errors import Conflict
from a3r.core.placement import Offer
from a3r.core.wire import (
    PROTOCOL,
    AttemptSpec,
    ClaimReply,
    ClaimRequest,
    EvalRound,
    EventReport,
    EventsRequest,
    FinishReport,
    LogChunk,
    StepsRequest,
    WorkerRegistration,
    WorkerWelcome,
)
from a3r.hub.auth import as_worker, holds, require, token_name_of
from a3r.hub.command_routes import add_answers
from a3r.hub.enlisting import add_enlisting, join_pool
from a3r.hub.heartbeats import add_heartbeat
from a3r.hub.refusals import RequestInvalid
from a3r.hub.said import said
from a3r.hub.seats import refuse_second
from a3r.hub.state import Hub
from a3r.hub.tokens import Role
from a3r.store.rows import AttemptRow, BlueprintRow

AttemptId = Annotated[str, PathParam(min_length=1, max_length=200)]
Sha256 = Annotated[str, PathParam(pattern="^[0-9a-f]{64}$")]
Done = dict[str, Any]


def worker_router(hub: Hub) -> APIRouter:
    """Return the routes of workers over ``hub``."""
    guards = [Depends(require(hub, Role.WORKER)), Depends(holds(hub))]
    router = APIRouter(prefix="/worker/v1", dependencies=guards)
    _add_life(router, hub)
    _add_evidence(router, hub)
    return router


def _add_life(router: APIRouter, hub: Hub) -> None:
    settings = hub.settings

    @router.post("/register")
    def register(request: WorkerRegistration, http: Request) -> WorkerWelcome:
        """Introduce a worker, or the same worker after a restart."""
        as_worker(hub, http, request.worker_id)
        _refuse_other_protocol(request)
        refuse_second(hub, request)
        hub.store.upsert_worker(
            request.worker_id,
            request.host,
            request.pid,
            request.slots,
            request.inventory,
            hub.clock.time(),
            token_name_of(http),
        )
        hub.hear(request.worker_id)
        join_pool(hub, http, request)
        return WorkerWelcome(
            worker_id=request.worker_id,
            heartbeat_s=settings.heartbeat_s,
            lease_s=settings.lease_s,
            hub_epoch=settings.epoch,
        )

    _add_claim(router, hub)
    add_heartbeat(router, hub)
    add_enlisting(router, hub)

    @router.get("/artifacts/{sha256}")
    def artifact(sha256: Sha256) -> Response:
        """Bytes of a packed client folder."""
        return Response(hub.store.artifact(sha256), media_type="application/octet-stream")


def _add_claim(router: APIRouter, hub: Hub) -> None:
    settings = hub.settings

    @router.post("/claim", response_model=ClaimReply)
    async def claim(request: ClaimRequest, http: Request) -> Response:
        """Lease the oldest queued attempt that fits to a worker; waits for one."""

        def admit() -> AttemptSpec | None:
            as_worker(hub, http, request.worker_id)
            again = _undelivered(hub, request)
            return None if again is None else spec_of(hub, again)

        undelivered = await hub.reading(admit)
        hub.hear(request.worker_id)
        if undelivered is not None or request.free_slots <= 0:
            return said(ClaimReply(attempt=undelivered))
        gpus, others = tuple(request.free_gpus), tuple(request.co_tenants)
        offer = Offer(request.free_slots, gpus, others)

        def look() -> AttemptRow | None:
            now = hub.clock.time()
            return hub.store.claim_attempt(request.worker_id, now, settings.lease_s, offer)

        gone = http.is_disconnected
        attempt = await hub.poll(look, request.wait_s, gone, hub.work, writes=True)
        if attempt is None:
            return said(ClaimReply())
        hub.changed()
        return said(ClaimReply(attempt=await hub.reading(lambda: spec_of(hub, attempt))))


def _add_evidence(router: APIRouter, hub: Hub) -> None:
    store = hub.store

    @router.post("/attempts/{attempt_id}/events")
    async def events(attempt_id: AttemptId, request: EventsRequest) -> Done:
        """Append events; known ones are ignored. A ``deviation`` is filed among the campaign's deviations too."""

        def write() -> int:
            added = store.add_events(attempt_id, request.fencing_token, request.events)
            _file_deviations(hub, attempt_id, request.events)
            return added

        return {"added": await hub.writing(write)}

    @router.post("/attempts/{attempt_id}/steps")
    async def steps(attempt_id: AttemptId, request: StepsRequest) -> Done:
        """Append training steps; known ones are ignored."""
        token = request.fencing_token
        added = await hub.writing(lambda: store.add_steps(attempt_id, token, request.steps))
        return {"added": added}

    @router.post("/attempts/{attempt_id}/evals")
    async def evals(attempt_id: AttemptId, request: EvalRound) -> Done:
        """File one complete evaluation round; the same content again is harmless."""
        token = request.fencing_token
        await hub.writing(lambda: store.add_eval_round(attempt_id, token, request))
        return {}

    _add_logs(router, hub)
    _add_finish(router, hub)
    add_answers(router, hub)


def _add_logs(router: APIRouter, hub: Hub) -> None:
    @router.post("/attempts/{attempt_id}/logs")
    async def logs(attempt_id: AttemptId, request: LogChunk) -> Done:
        """Append raw log bytes; answers with the log's new length."""
        return {"length": await hub.writing(lambda: _append(hub, attempt_id, request))}


def _append(hub: Hub, attempt_id: str, request: LogChunk) -> int:
    try:
        data = base64.b64decode(request.data_b64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestInvalid(
            "data_b64 is not base64.", hint="Encode the raw bytes with standard base64."
        ) from error
    token = request.fencing_token
    return hub.store.add_log_chunk(attempt_id, token, request.name, request.offset, data)


def _add_finish(router: APIRouter, hub: Hub) -> None:
    @router.post("/attempts/{attempt_id}/finish")
    async def finish(attempt_id: AttemptId, request: FinishReport) -> Done:
        """End an attempt. The same report again, after a lost answer, is harmless."""
        await hub.writing(
            lambda: hub.store.finish_attempt(
                attempt_id,
                request.fencing_token,
                request.outcome,
                request.failure,
                request.reason,
                request.summary,
                hub.clock.time(),
            )
        )
        hub.changed()
        return {}


def _refuse_other_protocol(request: WorkerRegistration) -> None:
    if request.protocol != PROTOCOL:
        raise Conflict(
            f"The worker speaks protocol {request.protocol}, this hub {PROTOCOL}.",
            hint="Install the same a3r on both; attempts that run are not harmed.",
        )


def spec_of(hub: Hub, attempt: AttemptRow) -> AttemptSpec:
    """Everything that a worker needs to run ``attempt``."""
    run = hub.store.run(attempt.run_id)
    row = hub.store.blueprint(run.blueprint_id)
    number = attempt.revision
    revised = hub.store.revision(row.id, number) if number else None
    sealed = row.blueprint.evaluator.artifact
    return AttemptSpec(
        attempt_id=attempt.id,
        run_id=run.id,
        campaign_id=attempt.campaign_id,
        label=f"{row.name} seed {run.seed}",
        ordinal=attempt.ordinal,
        nonce=attempt.nonce,
        fencing_token=attempt.fencing_token,
        lease_s=attempt.lease_s,
        seed=run.seed,
        blueprint=row.blueprint.model_dump(mode="json"),
        client_artifact=revised.artifact_sha if revised else row.artifact_sha,
        client_tree_hash=revised.tree_hash if revised else "",
        revision=number,
        artifacts={
            **({"evaluator": sealed} if sealed else {}),
            **_further_code(hub, row),
        },
        gpus=list(attempt.placement.get("gpus", [])),
    )


def _undelivered(hub: Hub, request: ClaimRequest) -> AttemptRow | None:
    """An attempt that the worker was given and never got: it, or the link, died over the answer. A worker claims one at a time."""
    if request.held is None or request.free_slots <= 0:
        return None
    now, lease_s = hub.clock.time(), hub.settings.lease_s
    return hub.store.lease_again(request.worker_id, request.held, now, lease_s)


def _further_code(hub: Hub, row: BlueprintRow) -> dict[str, str]:
    """Artifacts of clients whose code is not the first one's: each is the first client's of some blueprint of the campaign."""
    first, *others = row.blueprint.clients
    wanted = {c.name: c.tree_hash for c in others if c.tree_hash != first.tree_hash}
    if not wanted:
        return {}
    known = {
        b.blueprint.clients[0].tree_hash: b.artifact_sha
        for b in hub.store.blueprints(row.campaign_id)
    }
    return {f"client:{name}": known[tree] for name, tree in wanted.items() if tree in known}


def _file_deviations(hub: Hub, attempt_id: str, events: list[EventReport]) -> None:
    """Safe to repeat: a deviation is known by its attempt and the event's ``seq``."""
    told = [event for event in events if event.kind == "deviation"]
    if not told:
        return
    attempt = hub.store.attempt(attempt_id)
    run = hub.store.run(attempt.run_id)
    known = {
        row.data.get("seq")
        for row in hub.store.deviations(attempt.campaign_id)
        if row.attempt_id == attempt_id
    }
    for event in told:
        if event.seq not in known:
            hub.store.add_deviation(
                attempt.campaign_id,
                str(event.data.get("what", "deviation")),
                {**event.data, "seq": event.seq},
                event.at,
                blueprint_id=run.blueprint_id,
                attempt_id=attempt_id,
            )
