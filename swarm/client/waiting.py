"""What a client waits for, as pure decisions on what the server said."""

from __future__ import annotations

from swarm.client.errors import TrainingComplete, WaitTimeout
from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.errors import StateError
from swarm.protocol.messages import Status
from swarm.protocol.states import EngineState, GrantOutcome


def step_is_over(status: Status, after_step: int) -> bool:
    """Whether a wait for ``step > after_step`` is done; TRAINED ends it too, because no step follows.

    Raises:
        StateError: the server is OFFLINE, so the step cannot move.
    """
    if status.step > after_step or status.state is EngineState.TRAINED:
        return True
    if status.state is EngineState.OFFLINE:
        raise offline(status)
    return False


def offline(status: Status) -> StateError:
    """The error for a wait on a server that does nothing, with why."""
    why = f": {status.failure}" if status.failure else ""
    return StateError(
        f"The server is OFFLINE at step {status.step}{why}.",
        hint="Start it (client.start(), or the worker that owns it) and run again.",
    )


def step_timeout(status: Status, after_step: int, timeout_s: float) -> WaitTimeout:
    """The error for a step that did not end in time."""
    waiting = f", waiting for {status.waiting_for}" if status.waiting_for else ""
    return WaitTimeout(
        f"Step {after_step} was not over after {timeout_s:.0f} s: the server is {status.state.value} at step {status.step}{waiting}.",
        hint="Give a longer timeout_s, or look at what the server waits for with `swarm status`.",
    )


def granted(grant: Grant, request: GrantRequest) -> bool:
    """Whether the episode may begin; False = ask again.

    Raises:
        TrainingComplete: no train episode will be granted any more.
    """
    if grant.outcome is GrantOutcome.TRAINING_COMPLETE:
        raise TrainingComplete(
            f"Training is complete at step {grant.step}; task {request.task_id!r} was not granted.",
            hint="Use kind='eval' to go on with the trained weights.",
            step=grant.step,
        )
    return grant.outcome is GrantOutcome.GRANTED


def grant_timeout(grant: Grant, request: GrantRequest, timeout_s: float) -> WaitTimeout:
    """The error for an episode that was not granted in time."""
    why = f": {grant.reason}" if grant.reason else ""
    return WaitTimeout(
        f"No episode of task {request.task_id!r} was granted within {timeout_s:.0f} s{why}.",
        hint="The open step needs nothing of this task now; give a longer grant_timeout_s or look at `swarm status`.",
    )
