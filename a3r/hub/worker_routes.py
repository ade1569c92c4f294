"""``/worker/v1``: registration, claims, heartbeats and evidence of workers. The messages are ``a3r.core.wire``.

Every write carries the attempt's fencing token; the store refuses stale ones, which reaches the worker as 409.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi import Path as PathParam
from starlette.responses import Response

from a3r.core.errors import Conflict, NotFound
from a3r.core.placement import Offer
from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState
from a3r.core.wire import (
    PROTOCOL,
    AttemptReport,
    AttemptSpec,
    ClaimReply,
    ClaimRequest,
    Command,
    EvalRound,
    EventReport,
    EventsRequest,
    FinishReport,
    HeartbeatReply,
    HeartbeatRequest,
    LogChunk,
    StepsRequest,
    WorkerRegistration,
    WorkerWelcome,
)
from a3r.hub.auth import as_worker, holds, require, token_name_of
from a3r.hub.command_routes import add_answers, wanted_answers
from a3r.hub.enlisting import add_enlisting, join_pool
from a3r.hub.refusals import RequestInvalid
from a3r.hub.state import Hub
from a3r.hub.tokens import Role
from a3r.store.attempts import REPORTABLE
from a3r.store.rows import AttemptRow, BlueprintRow

AttemptId = Annotated[str, PathParam(min_length=1, max_length=200)]
Sha256 = Annotated[str, PathParam(pattern="^[0-9a-f]{64}$")]
Done = dict[str, Any]
FRESH = 0.75
"""Share of a lease that must be left for a heartbeat without news not to be written down."""


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
        hub.store.upsert_worker(
            request.worker_id,
            request.host,
            request.pid,
            request.slots,
            request.inventory,
            hub.clock.time(),
            token_name_of(http),
        )
        join_pool(hub, http, request)
        return WorkerWelcome(
            worker_id=request.worker_id,
            heartbeat_s=settings.heartbeat_s,
            lease_s=settings.lease_s,
            hub_epoch=settings.epoch,
        )

    _add_claim(router, hub)
    _add_heartbeat(router, hub)
    add_enlisting(router, hub)

    @router.get("/artifacts/{sha256}")
    def artifact(sha256: Sha256) -> Response:
        """Bytes of a packed client folder."""
        return Response(hub.store.artifact(sha256), media_type="application/octet-stream")


def _add_claim(router: APIRouter, hub: Hub) -> None:
    settings = hub.settings

    @router.post("/claim")
    async def claim(request: ClaimRequest, http: Request) -> ClaimReply:
        """Lease the oldest queued attempt that fits to a worker; waits for one."""

        def admit() -> AttemptSpec | None:
            as_worker(hub, http, request.worker_id)
            again = _undelivered(hub, request)
            return None if again is None else spec_of(hub, again)

        undelivered = await asyncio.to_thread(admit)
        hub.hear(request.worker_id)
        if undelivered is not None or request.free_slots <= 0:
            return ClaimReply(attempt=undelivered)
        gpus, others = tuple(request.free_gpus), tuple(request.co_tenants)
        offer = Offer(request.free_slots, gpus, others)

        def look() -> AttemptRow | None:
            now = hub.clock.time()
            return hub.store.claim_attempt(request.worker_id, now, settings.lease_s, offer)

        attempt = await hub.poll(look, request.wait_s, http.is_disconnected, hub.work)
        if attempt is None:
            return ClaimReply()
        hub.changed()
        return ClaimReply(attempt=await asyncio.to_thread(spec_of, hub, attempt))


def _add_heartbeat(router: APIRouter, hub: Hub) -> None:
    @router.post("/heartbeat")
    async def heartbeat(request: HeartbeatRequest, http: Request) -> HeartbeatReply:
        """Renew leases; answers with commands, at once when there are any."""

        def renew() -> list[Command]:
            as_worker(hub, http, request.worker_id)
            return _renew_all(hub, request)

        refused = await asyncio.to_thread(renew)
        hub.hear(request.worker_id, request.trouble)

        def look() -> list[Command] | None:
            stops = _wanted_stops(hub, request.attempts, refused)
            return [*refused, *stops, *wanted_answers(hub, request.worker_id)] or None

        commands = await hub.poll(look, request.wait_s, http.is_disconnected, hub.orders)
        return HeartbeatReply(
            commands=commands or [],
            hub_epoch=hub.settings.epoch,
            wanted=await asyncio.to_thread(hub.store.wanted_of, request.worker_id),
        )


def _add_evidence(router: APIRouter, hub: Hub) -> None:
    store = hub.store

    @router.post("/attempts/{attempt_id}/events")
    def events(attempt_id: AttemptId, request: EventsRequest) -> Done:
        """Append events; known ones are ignored. A ``deviation`` is filed among the campaign's deviations too."""
        added = store.add_events(attempt_id, request.fencing_token, request.events)
        _file_deviations(hub, attempt_id, request.events)
        return {"added": added}

    @router.post("/attempts/{attempt_id}/steps")
    def steps(attempt_id: AttemptId, request: StepsRequest) -> Done:
        """Append training steps; known ones are ignored."""
        return {"added": store.add_steps(attempt_id, request.fencing_token, request.steps)}

    @router.post("/attempts/{attempt_id}/evals")
    def evals(attempt_id: AttemptId, request: EvalRound) -> Done:
        """File one complete evaluation round; the same content again is harmless."""
        store.add_eval_round(attempt_id, request.fencing_token, request)
        return {}

    _add_logs(router, hub)
    _add_finish(router, hub)
    add_answers(router, hub)


def _add_logs(router: APIRouter, hub: Hub) -> None:
    @router.post("/attempts/{attempt_id}/logs")
    def logs(attempt_id: AttemptId, request: LogChunk) -> Done:
        """Append raw log bytes; answers with the log's new length."""
        try:
            data = base64.b64decode(request.data_b64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestInvalid(
                "data_b64 is not base64.", hint="Encode the raw bytes with standard base64."
            ) from error
        length = hub.store.add_log_chunk(
            attempt_id, request.fencing_token, request.name, request.offset, data
        )
        return {"length": length}


def _add_finish(router: APIRouter, hub: Hub) -> None:
    @router.post("/attempts/{attempt_id}/finish")
    def finish(attempt_id: AttemptId, request: FinishReport) -> Done:
        """End an attempt. The same report again, after a lost answer, is harmless."""
        hub.store.finish_attempt(
            attempt_id,
            request.fencing_token,
            request.outcome,
            request.failure,
            request.reason,
            request.summary,
            hub.clock.time(),
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


def _renew_all(hub: Hub, request: HeartbeatRequest) -> list[Command]:
    """Renew what may be renewed; what may not becomes a command."""
    commands: list[Command] = []
    for report in request.attempts:
        try:
            command = _renew(hub, report)
        except NotFound:
            command = _command("stop_attempt", report, "the hub does not know this attempt")
        except Conflict as error:
            command = _command("stop_attempt", report, error.message)
        if command is not None:
            commands.append(command)
    return commands


def _renew(hub: Hub, report: AttemptReport) -> Command | None:
    row = hub.store.attempt(report.attempt_id)
    over = report.state in TERMINAL_ATTEMPTS
    if row.state in TERMINAL_ATTEMPTS:
        # Reported as running: it was given up here. Reported as over: both sides agree.
        kind = "forget_attempt" if over else "stop_attempt"
        return _command(kind, report, f"the attempt is {row.state.value} for the hub")
    # A worker whose attempt is over still has evidence to deliver: the lease is kept, the state is not believed
    # before the finish report says why.
    held = row.state if row.state in REPORTABLE else AttemptState.EVALUATING
    state = held if over else report.state
    if _says_nothing_new(hub, row, report, state):
        return None
    hub.store.renew(
        report.attempt_id,
        report.fencing_token,
        state,
        report.step,
        report.detail,
        hub.clock.time(),
        hub.settings.lease_s,
    )
    return None


def _says_nothing_new(
    hub: Hub, row: AttemptRow, report: AttemptReport, state: AttemptState
) -> bool:
    """Whether a lease that is young would only get a few seconds younger: of hundreds of workers most heartbeats say just that."""
    lease_s = hub.settings.lease_s
    left_s = (row.lease_expires_at or 0.0) - hub.clock.time()
    same = (row.fencing_token, row.state, row.detail) == (
        report.fencing_token,
        state,
        report.detail,
    )
    step_known = report.step in (None, row.step)
    return same and step_known and row.lease_s == lease_s and left_s > FRESH * lease_s


def _wanted_stops(hub: Hub, reports: list[AttemptReport], refused: list[Command]) -> list[Command]:
    """Stops that somebody asked for; repeated until the attempt is over, so a lost answer costs nothing."""
    told = {command.attempt_id for command in refused}
    commands: list[Command] = []
    for report in reports:
        if report.attempt_id in told or report.state in TERMINAL_ATTEMPTS:
            continue
        row = hub.store.attempt(report.attempt_id)
        if row.stop_reason is not None or row.state in TERMINAL_ATTEMPTS:
            commands.append(_command("stop_attempt", report, row.stop_reason or row.state.value))
    return commands


def _command(kind: Any, report: AttemptReport, reason: str) -> Command:
    return Command(kind=kind, attempt_id=report.attempt_id, reason=reason)
