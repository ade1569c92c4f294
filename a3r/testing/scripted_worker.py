"""A worker without processes that speaks the hub's real HTTP: claims, renews, and sends complete SYNTHETIC results. For proofs only."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from typing import Any

from a3r.blueprints.model import Blueprint
from a3r.core.ports import Hub
from a3r.core.types import AttemptState
from a3r.core.wire import (
    AttemptReport,
    AttemptSpec,
    ClaimRequest,
    EvalRound,
    EventReport,
    EventsRequest,
    FinishReport,
    HeartbeatReply,
    HeartbeatRequest,
    LogChunk,
    StepsRequest,
    WorkerRegistration,
)
from a3r.testing.fake_worker import START_SHARE, synthetic_item, synthetic_step


@dataclass
class ScriptedWorker:
    """One worker; every message goes over ``hub``, so each call may raise what that raises."""

    hub: Hub
    worker_id: str
    slots: int = 1
    inventory: dict[str, Any] = field(default_factory=dict[str, Any])

    def register(self) -> None:
        """Introduce it."""
        self.hub.register(
            WorkerRegistration(
                worker_id=self.worker_id,
                host=f"host-of-{self.worker_id}",
                pid=1,
                slots=self.slots,
                inventory=self.inventory,
            )
        )

    def claim(self, wait_s: float = 0.0, held: list[str] | None = None) -> AttemptSpec | None:
        """The next attempt; None = nothing to do. ``held``: attempts that it has, as a worker says that keeps count."""
        asked = ClaimRequest(
            worker_id=self.worker_id, free_slots=self.slots, wait_s=wait_s, held=held
        )
        return self.hub.claim(asked)

    def beat(self, *specs: AttemptSpec, step: int = 0, wait_s: float = 0.0) -> HeartbeatReply:
        """Renew the leases of ``specs``."""
        reports = [
            AttemptReport(
                attempt_id=spec.attempt_id,
                fencing_token=spec.fencing_token,
                state=AttemptState.RUNNING,
                step=step,
                detail="training",
            )
            for spec in specs
        ]
        asked = HeartbeatRequest(worker_id=self.worker_id, attempts=reports, wait_s=wait_s)
        return self.hub.heartbeat(asked)

    def play(self, spec: AttemptSpec) -> None:
        """Everything of an attempt, from its first event to its end."""
        self.send_events(spec)
        self.send_steps(spec)
        for found in rounds_of(spec):
            self.hub.evals(spec.attempt_id, found)
        self.send_log(spec)
        self.finish(spec)

    def send_events(self, spec: AttemptSpec, count: int = 3) -> None:
        """The first events."""
        events = [
            EventReport(seq=n, at=float(n), actor="worker", kind="synthetic", data={"n": n})
            for n in range(count)
        ]
        request = EventsRequest(fencing_token=spec.fencing_token, events=events)
        self.hub.events(spec.attempt_id, request)

    def send_steps(self, spec: AttemptSpec, upto: int | None = None) -> None:
        """The steps 1 to ``upto`` (None: all)."""
        train = blueprint_of(spec).servers[0].train
        last = train.stop_at_step if upto is None else upto
        batch = train.batch
        steps = [synthetic_step(k, batch.tasks, batch.repeat) for k in range(1, last + 1)]
        request = StepsRequest(fencing_token=spec.fencing_token, steps=steps)
        self.hub.steps(spec.attempt_id, request)

    def send_log(self, spec: AttemptSpec, data: bytes = b"a line of a log\n", at: int = 0) -> None:
        """A piece of the client's log."""
        text = base64.b64encode(data).decode()
        chunk = LogChunk(fencing_token=spec.fencing_token, name="client", offset=at, data_b64=text)
        self.hub.logs(spec.attempt_id, chunk)

    def finish(self, spec: AttemptSpec, outcome: Any = "succeeded", reason: str = "") -> None:
        """End it."""
        report = FinishReport(
            fencing_token=spec.fencing_token,
            outcome=outcome,
            reason=reason,
            summary={"seed": spec.seed},
        )
        self.hub.finish(spec.attempt_id, report)


def blueprint_of(spec: AttemptSpec) -> Blueprint:
    """The attempt's blueprint."""
    return Blueprint.model_validate(spec.blueprint)


def rounds_of(spec: AttemptSpec) -> list[EvalRound]:
    """The first and the last round; the last is a little better, by the seed."""
    blueprint = blueprint_of(spec)
    evaluator, server = blueprint.evaluator, blueprint.servers[0]
    start = round(START_SHARE * evaluator.items)
    rng = random.Random(f"{blueprint.name}/{spec.seed}")  # noqa: S311 - no secret
    end = min(evaluator.items, start + rng.randrange(3))
    last = server.train.stop_at_step
    return [
        EvalRound(
            fencing_token=spec.fencing_token,
            name=name,
            step=step,
            policy_version=step,
            planned=evaluator.items,
            item_set_hash=evaluator.item_set_hash,
            evaluator_hash=evaluator.source_hash,
            fingerprint=server.model_fingerprint if step == 0 else f"v{step}",
            items=[synthetic_item(n, float(n < good), step) for n in range(evaluator.items)],
        )
        for name, step, good in (("initial", 0, start), ("final", last, end))
    ]
