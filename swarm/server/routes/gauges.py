"""``GET /metrics``: a few gauges in Prometheus' text format, written by hand."""

from __future__ import annotations

from swarm.protocol.messages import Status, StepMetrics
from swarm.protocol.states import EngineState


def prometheus_text(status: Status, last: StepMetrics | None) -> str:
    """Return the gauges of ``status`` and of the ``last`` completed step; values that do not exist are left out."""
    lines: list[str] = []

    def add(name: str, kind: str, text: str, *samples: tuple[str, float | None]) -> None:
        known = [f"swarm_{name}{labels} {value}" for labels, value in samples if value is not None]
        if known:
            lines.extend((f"# HELP swarm_{name} {text}", f"# TYPE swarm_{name} {kind}", *known))

    version = status.policy_version
    states = ((f'{{state="{state.value}"}}', float(state is status.state)) for state in EngineState)
    add("engine_state", "gauge", "1 for the state that the engine is in.", *states)
    add("step", "gauge", "Completed steps.", ("", status.step))
    add("policy_version", "gauge", "Optimizer moves so far.", ("", version.n if version else None))
    add("open_episodes", "gauge", "Episodes being played now.", ("", status.open_episodes))
    add(
        "engine_restarts_total",
        "counter",
        "Restarts of the engine process.",
        ("", status.engine_restarts),
    )
    if last is not None:
        add("reward_mean", "gauge", "Mean reward of the last step's batch.", ("", last.reward_mean))
        add("loss", "gauge", "Loss of the last update.", ("", last.loss))
        add(
            "rollout_seconds",
            "gauge",
            "Wall time of the last step's rollouts.",
            ("", last.rollout_s),
        )
        add("update_seconds", "gauge", "Wall time of the last update.", ("", last.update_s))
    return "\n".join(lines) + "\n"
