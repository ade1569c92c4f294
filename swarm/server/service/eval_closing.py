"""An evaluator closes the round of a step: what is refused, what is recorded, what then stands."""

from __future__ import annotations

from swarm.protocol.errors import StateError
from swarm.protocol.messages import EvalRoundClose
from swarm.server.journal.records import EvalRound
from swarm.server.service.core import Core
from swarm.triggers import Point, hit


def close_round(core: Core, closing: EvalRoundClose) -> None:
    """Close the round, in the journal first; a gate that waited for it opens. The first word on a round stands, also ``missed``.

    Raises:
        StateError: No configuration, or the step has not begun, so nothing of it can have been evaluated.
        JournalFailed: It is not recorded, and not closed.
    """
    core.config  # noqa: B018 - raises when there is none
    step = closing.step
    if step > core.trained_step:
        raise StateError(
            f"Step {step} has not begun; the server is at step {core.trained_step}.",
            hint="Evaluate a step once the server's step is this one, then close its round.",
        )
    if not core.evals.outcome(step):
        core.journal.close_eval_round(
            EvalRound(step=step, planned=closing.planned, completed=closing.completed, missed=False)
        )
    hit(Point.EVAL_RECORDED)
    core.events.try_add(
        "eval_round",
        step=step,
        planned=closing.planned,
        completed=closing.completed,
        outcome=core.evals.close(closing),
    )
