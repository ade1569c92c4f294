"""Evaluation: the gate that holds train grants at chosen steps, and the numbering of eval episodes."""

from __future__ import annotations

from collections import defaultdict

from swarm.protocol.config import EvalGate
from swarm.protocol.messages import EvalRoundClose


class EvalRounds:
    """Which eval rounds are closed or missed. A gated step holds train grants until its round is either.

    A missed round is remembered as missed, also when its evaluator closes it later.
    """

    def __init__(self, gate: EvalGate) -> None:
        self._gate = gate
        self._outcome: dict[int, str] = {}
        self._opened_at: dict[int, float] = {}

    def enter(self, step: int, now: float) -> None:
        """Note that ``step`` opened (monotonic seconds); its deadline counts from the first time."""
        self._opened_at.setdefault(step, now)

    def close(self, closing: EvalRoundClose) -> str:
        """Close a round; returns ``closed``, or ``incomplete`` when fewer items were completed than planned, or ``missed``."""
        full = closing.completed >= closing.planned
        return self._outcome.setdefault(closing.step, "closed" if full else "incomplete")

    def restore(self, step: int, outcome: str) -> None:
        """Take an outcome from the journal."""
        self._outcome.setdefault(step, outcome)

    def outcome(self, step: int) -> str:
        """Return ``""`` (not gated, or still open), ``closed``, ``incomplete`` or ``missed``."""
        return self._outcome.get(step, "")

    def holds(self, step: int) -> bool:
        """Whether train grants of ``step`` must wait for its eval round."""
        return step in self._gate.at_steps and step not in self._outcome

    def overdue(self, step: int, now: float) -> bool:
        """Mark the round of ``step`` as missed when its deadline has passed; returns whether it just did."""
        opened = self._opened_at.get(step)
        if not self.holds(step) or opened is None or now - opened < self._gate.deadline_s:
            return False
        self._outcome[step] = "missed"
        return True

    def deadline_in_s(self, step: int, now: float) -> float:
        """Return the seconds until the gate of ``step`` opens by itself."""
        return max(0.0, self._opened_at.get(step, now) + self._gate.deadline_s - now)


class EvalSlots:
    """Gives each eval episode of a step and task its repeat index: the smallest one not in use, so noise keys repeat."""

    def __init__(self) -> None:
        self._step = -1
        self._taken: dict[str, set[int]] = defaultdict(set)

    def take(self, step: int, task: str) -> tuple[str, int]:
        """Return ``(group_id, repeat_index)`` for the next eval episode of ``task``."""
        self._enter(step)
        group_id = f"e{step}.{task}"
        taken = self._taken[group_id]
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        taken.add(index)
        return group_id, index

    def restore(self, step: int, group_id: str, index: int) -> None:
        """Take the place of an eval episode that finished before this process began."""
        self._enter(step)
        self._taken[group_id].add(index)

    def _enter(self, step: int) -> None:
        if step != self._step:
            self._step = step
            self._taken.clear()

    def give_back(self, group_id: str, index: int) -> None:
        """Free the place of an episode that was lost."""
        self._taken[group_id].discard(index)
