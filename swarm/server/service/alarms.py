"""What a person should look at now: a few lines in the server's status, gone when they are over."""

from __future__ import annotations

from collections.abc import Callable

from swarm.protocol.records import StepMetrics

DRIFT_LEAST_CALLS = 10
"""Fewer calls in a step say nothing of how many diverge."""
GAP_LIMIT = 0.5
"""Trainer and sampler that differ by more than this (log-probability, tokens of the current version) do not run one model."""


class Alarms:
    """Warnings by name, in the order in which they were raised."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.on_raised: Callable[[str], None] = lambda _text: None
        """Told the text of a warning that was not there before."""

    def set(self, name: str, text: str) -> None:
        """Raise a warning, replace its text, or clear it with an empty one."""
        if text:
            new = name not in self._texts
            self._texts[name] = text
            if new:
                self.on_raised(text)
        else:
            self._texts.pop(name, None)

    def reset(self) -> None:
        """Forget all: a new run begins."""
        self._texts.clear()

    def texts(self) -> list[str]:
        """Return what to show."""
        return list(self._texts.values())

    def step_done(self, metrics: StepMetrics, drift_share: float) -> bool:
        """Judge a completed step; each completed step speaks anew. Returns whether its calls drifted from what was sampled.

        ``drift_share``: of the step's calls, how many may diverge (``sampling.divergence_alarm``).
        """
        step = metrics.step
        if metrics.rolled_back or metrics.updated:
            undone = f"The update of step {step} was undone: {metrics.rolled_back}."
            self.set("rolled_back", undone if metrics.rolled_back else "")
        drift = metrics.divergences / metrics.calls if metrics.calls else 0.0
        drifts = metrics.calls >= DRIFT_LEAST_CALLS and drift > drift_share
        self.set(
            "drift",
            f"{metrics.divergences} of {metrics.calls} calls of step {step} did not continue what was sampled before them."
            if drifts
            else "",
        )
        gap = metrics.logprob_gap_max
        self.set(
            "gap",
            f"Trainer and sampler differ by {gap:.2f} in the log-probability of a token of step {step}."
            if gap is not None and gap > GAP_LIMIT and not metrics.staleness_max
            else "",
        )
        return drifts
