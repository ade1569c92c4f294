"""``POST /worker/v1/heartbeat``: leases are renewed, and the worker is told what is wanted of it.

The most frequent request by far: of hundreds of workers one every few milliseconds. So it takes one look at the database, writes
only what is news, and waits for orders without a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState
from a3r.core.wire import AttemptReport, Command, HeartbeatReply, HeartbeatRequest
from a3r.hub.auth import as_worker
from a3r.hub.command_routes import to_command
from a3r.hub.said import said
from a3r.hub.state import Hub
from a3r.store.attempts import REPORTABLE
from a3r.store.beats import Known, Renewal
from a3r.store.rows import AttemptRow

FRESH = 0.75
"""Share of a lease that must be left for a heartbeat without news not to be written down."""


@dataclass
class _Verdict:
    """What becomes of the attempts that a worker reports."""

    refused: list[Command] = field(default_factory=list[Command])
    renewals: list[Renewal] = field(default_factory=list[Renewal])


def add_heartbeat(router: APIRouter, hub: Hub) -> None:
    """Add the route to the workers' routes."""

    @router.post("/heartbeat", response_model=HeartbeatReply)
    async def heartbeat(request: HeartbeatRequest, http: Request) -> Response:
        """Renew leases; answers with commands, at once when there are any."""
        ids = [report.attempt_id for report in request.attempts]

        def look() -> Known:
            return hub.store.known_of(request.worker_id, ids)

        def admit() -> Known:
            as_worker(hub, http, request.worker_id)
            return look()

        seen = hub.orders.count
        known = await hub.reading(admit)
        verdict = _judge(hub, known, request.attempts)
        if verdict.renewals:
            verdict.refused += await hub.writing(lambda: _renew(hub, verdict.renewals))
        hub.hear(request.worker_id, request.trouble)
        refused, wanted = verdict.refused, [known.wanted]
        commands = _commands(known, request.attempts, refused)

        def again() -> list[Command] | None:
            newest = look()
            wanted[0] = newest.wanted
            return _commands(newest, request.attempts, refused) or None

        if not commands and request.wait_s > 0:
            gone = http.is_disconnected
            commands = await hub.poll(again, request.wait_s, gone, hub.orders, seen) or []
        epoch = hub.settings.epoch
        return said(HeartbeatReply(commands=commands, hub_epoch=epoch, wanted=wanted[0]))


def _judge(hub: Hub, known: Known, reports: Sequence[AttemptReport]) -> _Verdict:
    """Which attempts are renewed, and what is said of those that can not be."""
    verdict = _Verdict()
    for report in reports:
        row = known.attempts.get(report.attempt_id)
        over = report.state in TERMINAL_ATTEMPTS
        if row is None:
            why = "the hub does not know this attempt"
            verdict.refused.append(_command("stop_attempt", report.attempt_id, why))
            continue
        if row.state in TERMINAL_ATTEMPTS:
            # Reported as running: it was given up here. Reported as over: both sides agree.
            kind = "forget_attempt" if over else "stop_attempt"
            why = f"the attempt is {row.state.value} for the hub"
            verdict.refused.append(_command(kind, report.attempt_id, why))
            continue
        # A worker whose attempt is over still has evidence to deliver: the lease is kept, the state is not believed
        # before the finish report says why.
        held = row.state if row.state in REPORTABLE else AttemptState.EVALUATING
        state = held if over else report.state
        if not _says_nothing_new(hub, row, report, state):
            token, step = report.fencing_token, report.step
            renewal = Renewal(report.attempt_id, token, state, step, report.detail)
            verdict.renewals.append(renewal)
    return verdict


def _renew(hub: Hub, renewals: Sequence[Renewal]) -> list[Command]:
    """Renew what may be renewed; what may not becomes a command."""
    refused = hub.store.renew_all(renewals, hub.clock.time(), hub.settings.lease_s)
    return [_command("stop_attempt", one, error.message) for one, error in refused.items()]


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


def _commands(
    known: Known, reports: Sequence[AttemptReport], refused: Sequence[Command]
) -> list[Command]:
    """Everything to be told now. Stops are repeated until the attempt is over, questions until answered: a lost answer costs nothing."""
    told = {command.attempt_id for command in refused}
    stops: list[Command] = []
    for report in reports:
        row = known.attempts.get(report.attempt_id)
        if row is None or report.attempt_id in told or report.state in TERMINAL_ATTEMPTS:
            continue
        if row.stop_reason is not None or row.state in TERMINAL_ATTEMPTS:
            why = row.stop_reason or row.state.value
            stops.append(_command("stop_attempt", report.attempt_id, why))
    return [*refused, *stops, *map(to_command, known.commands)]


def _command(kind: Any, attempt_id: str, reason: str) -> Command:
    return Command(kind=kind, attempt_id=attempt_id, reason=reason)
