"""Agreeing to take the open step (policies C4 and C5): checked, recorded, answered with who is still missing."""

from __future__ import annotations

from swarm.protocol.clients import AgreeReply, AgreeRequest
from swarm.protocol.errors import StateError
from swarm.protocol.states import CollectionPolicy, EngineState, Role
from swarm.server.service import policies
from swarm.server.service.consent import AGREED
from swarm.server.service.core import Core


def agree(core: Core, client_id: str, request: AgreeRequest) -> AgreeReply:
    """Take a trainer's agreement to a step. Idempotent: also one that took its step is answered again, as it stood.

    The caller then looks at the pool again.

    Raises:
        NotFoundError: The client is not registered, or its lease ended.
        StateError: It is no trainer, the policy asks nobody, or the step has passed or not begun.
    """
    core.config  # noqa: B018 - raises when there is none
    client = core.clients.require(client_id)
    core.clients.heartbeat(client_id)
    if client.role is not Role.TRAINER:
        raise StateError(
            f"Client {client_id!r} is registered as {client.role.value}; only trainers agree.",
            hint="Register it as a trainer.",
        )
    last = core.consent.agreed_last(core.incarnation, request.for_step)
    if client_id in last:
        return AgreeReply(step=request.for_step, agreed=sorted(last), missing=[], fires=True)
    _check_step(core, request.for_step)
    if client_id not in core.consent.agreed():
        core.events.add(AGREED, incarnation=core.incarnation, step=core.step, client_id=client_id)
        core.consent.add(client_id)
    return AgreeReply(
        step=core.step,
        agreed=core.consent.agreed(),
        missing=core.consent.missing() if _policy(core) is CollectionPolicy.C4 else [],
        fires=_fires(core),
    )


def _policy(core: Core) -> CollectionPolicy:
    return core.pool.batch.policy


def _check_step(core: Core, step: int) -> None:
    if core.lifecycle.state is EngineState.TRAINED:
        raise StateError(
            f"Training is complete at step {core.step}; there is nothing to agree to.",
            hint="Raise stop_at_step to go on.",
            step=core.step,
        )
    if step != core.step:
        verb = "has passed" if step < core.step else "has not begun"
        raise StateError(
            f"Step {step} {verb}; the server is at step {core.step}.",
            hint="Read the status and agree to its step, if that is still wanted.",
            step=core.step,
        )
    if _policy(core) not in policies.BY_AGREEMENT:
        raise StateError(
            f"Step {core.step} is taken under policy {_policy(core).value!r}, which asks nobody.",
            hint="Set batch.policy to 'C4' (every trainer agrees) or 'C5' (any trainer agrees).",
            step=core.step,
        )


def _fires(core: Core) -> bool:
    if core.lifecycle.state is EngineState.ROLLING:
        return policies.is_ready(core.pool)
    return core.pool.consent() and policies.something_to_take(core.pool)
