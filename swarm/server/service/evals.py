"""Evaluation: the gate that holds train grants at chosen steps, and the numbering of eval episodes."""

from __future__ import annotations

from collections import defaultdict

from swarm.protocol.config import EvalGate
from swarm.protocol.messages import EvalRoundClose


class EvalRounds:
    """Which eval rounds are closed or missed. A gated step holds train grants until its round is either.

    A missed round is remembered as missed, also when its evaluator closes it later. Times are monotonic seconds; a gate's
    deadline only runs while the server can serve an evaluation (``run``), not while it is OFFLINE or its engine is away.
    """

    def __init__(self, gate: EvalGate) -> None:
        self.gate = gate
        """May be replaced between two steps."""
        self._outcome: dict[int, str] = {}
        self._step = -1
        self._spent_s = 0.0
        """Of the deadline of ``_step``, up to ``_since``."""
        self._since: float | None = None
        """When the deadline began to run; None = it stands still."""

    def enter(self, step: int, now: float) -> None:
        """Note that ``step`` is open; its deadline counts from the first time."""
        if step != self._step:
            self._step, self._spent_s = step, 0.0
            self._since = None if self._since is None else now

    def run(self, now: float) -> None:
        """Let the deadline run from now on. Safe to call twice."""
        if self._since is None:
            self._since = now

    def pause(self, now: float) -> None:
        """Let the deadline stand still. Safe to call twice."""
        self._spent_s = self._spent(now)
        self._since = None

    def gated(self, step: int) -> bool:
        """Whether the configuration asks for a round before ``step``."""
        every = self.gate.every_steps
        return step in self.gate.at_steps or (every is not None and step % every == 0)

    def close(self, closing: EvalRoundClose) -> str:
        """Close a round; returns ``closed``, or ``incomplete`` when fewer items were completed than planned, or ``missed``.

        The caller refuses rounds of steps that have not begun.
        """
        full = closing.completed >= closing.planned
        return self._outcome.setdefault(closing.step, "closed" if full else "incomplete")

    def restore(self, step: int, outcome: str) -> None:
        """Take an outcome that the journal has."""
        self._outcome.setdefault(step, outcome)

    def outcome(self, step: int) -> str:
        """Return ``""`` (not gated, or still open), ``closed``, ``incomplete`` or ``missed``."""
        return self._outcome.get(step, "")

    @property
    def last_missed(self) -> int | None:
        """The step of the newest round when that was missed; None when it was held, or there was none."""
        newest = max(self._outcome, default=None)
        return newest if newest is not None and self._outcome[newest] == "missed" else None

    def holds(self, step: int) -> bool:
        """Whether train grants of ``step`` must wait for its eval round."""
        return self.gated(step) and step not in self._outcome

    def overdue(self, step: int, now: float) -> bool:
        """Whether the deadline of ``step``'s round has passed while it is neither closed nor missed."""
        return step == self._step and self.holds(step) and self._spent(now) >= self.gate.deadline_s

    def deadline_in_s(self, step: int, now: float) -> float:
        """Return the seconds of serving until the gate of ``step`` opens by itself."""
        spent_s = self._spent(now) if step == self._step else 0.0
        return max(0.0, self.gate.deadline_s - spent_s)

    def _spent(self, now: float) -> float:
        return self._spent_s + (0.0 if self._since is None else max(0.0, now - self._since))


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
