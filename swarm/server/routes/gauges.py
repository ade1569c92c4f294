"""``GET /metrics``: the server's state in Prometheus' format. ``docs/guides/monitoring.md`` explains every name.

Values are read when a scraper asks; nothing is kept here. A value that does not exist is left out, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from swarm.protocol.overview import Overview
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import EngineState, EpisodeKind, Role
from swarm.server.service.monitor import Monitor
from swarm.server.service.traffic import CALL_BOUNDS_S, Traffic

LAST_STEP = {
    "reward_mean": "Mean reward of the batch.",
    "reward_std": "Standard deviation of the batch's rewards.",
    "zero_advantage_share": "Share of the batch's episodes in groups with equal rewards.",
    "turns_mean": "Calls an episode.",
    "truncated_share": "Share of calls that ended by length.",
    "response_tokens_mean": "Sampled tokens a call.",
    "loss": "Loss of the update.",
    "grad_norm": "Gradient norm before clipping.",
    "clip_fraction": "Share of trained tokens whose ratio was clipped.",
    "entropy": "Mean entropy over trained tokens, nats.",
    "kl": "KL towards the reference model (k3), nats.",
    "lr": "Learning rate of the update.",
    "logprob_gap_max": "Largest |trainer - sampler| log-probability.",
    "staleness_mean": "Policy versions between sampling and update, mean.",
    "importance_clipped_share": "Share of trained tokens with a truncated importance weight.",
    "rollout_s": "Wall time of the rollouts, seconds.",
    "drain_s": "Wall time of waiting for open episodes, seconds.",
    "update_s": "Wall time of the update, seconds.",
    "groups_tried": "Groups opened for the step.",
    "episodes": "Episodes that the step consumed.",
}
"""Fields of ``StepMetrics`` that become gauges ``swarm_last_step_<name>`` (``_s`` becomes ``_seconds``)."""


class Exposition:
    """Renders one server's metrics in the format that the scraper asks for."""

    def __init__(self, monitor: Monitor) -> None:
        """A registry of its own: several servers may live in one process."""
        self._registry = CollectorRegistry()
        self._registry.register(_ServerCollector(monitor))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the body and its content type for an ``Accept`` header (empty: the plain text format)."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _ServerCollector(Collector):
    """Makes all metric families anew at each scrape."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        """Yield the families in the order of the guide."""
        view = self._monitor.overview()
        yield from _engine(view)
        yield from _open_step(view, self._monitor)
        yield from _clients(view)
        yield from _traffic(self._monitor.traffic)
        last = self._monitor.last_step()
        if last is not None:
            yield from _last_step(last)


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    if value is not None:
        yield GaugeMetricFamily(f"swarm_{name}", text, value=value)


def _labelled(
    name: str, text: str, label: str, values: Iterable[tuple[str, float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"swarm_{name}", text, labels=[label])
    for key, value in values:
        family.add_metric([key], value)
    return family


def _engine(view: Overview) -> Iterator[Metric]:
    status = view.status
    version = status.policy_version
    states = ((state.value, float(state is status.state)) for state in EngineState)
    yield _labelled("engine_state", "1 for the state that the engine is in.", "state", states)
    info = GaugeMetricFamily(
        "swarm_server_info", "Always 1; the labels tell.", labels=["version", "server_id", "model"]
    )
    info.add_metric([status.version, status.server_id, status.model or ""], 1.0)
    yield info
    yield from _gauge("step", "Completed steps of the run.", status.step)
    yield from _gauge("stop_at_step", "Steps after which training ends.", status.stop_at_step)
    yield from _gauge("policy_version", "Optimizer moves of the run.", version and version.n)
    yield from _gauge("warnings", "Warnings that a person should look at.", len(status.warnings))
    yield from _gauge("updating", "1 while an update overlaps rolling.", float(status.updating))
    restarts = CounterMetricFamily("swarm_engine_restarts", "Restarts of the engine process.")
    restarts.add_metric([], status.engine_restarts)
    yield restarts


def _open_step(view: Overview, monitor: Monitor) -> Iterator[Metric]:
    yield _labelled(
        "open_episodes",
        "Episodes being played now.",
        "kind",
        ((kind.value, monitor.open_episodes(kind)) for kind in EpisodeKind),
    )
    groups = {
        "complete": view.pool.groups_complete,
        "open": view.pool.groups_open,
        "dropped": monitor.dropped_groups(),
    }
    yield _labelled("groups", "Groups of the open step.", "status", groups.items())
    yield from _gauge("open_step_progress", "0..1 towards the next update.", view.progress)
    yield from _gauge("open_step_age_seconds", "Since the open step began.", view.step_age_s)
    yield from _gauge(
        "open_step_divergences", "Diverged prompts of the open step.", view.divergences
    )
    yield from _gauge("calls_in_flight", "Calls inside the engine now.", view.calls_in_flight)
    yield from _gauge("calls_held", "Calls that wait for the engine.", view.calls_held)
    yield from _gauge("sampled_tokens_per_second", "Over the last ten seconds.", view.tokens_per_s)


def _clients(view: Overview) -> Iterator[Metric]:
    roles = Counter(client.role for client in view.clients)
    yield _labelled(
        "clients", "Clients with a lease.", "role", ((role.value, roles[role]) for role in Role)
    )


def _traffic(traffic: Traffic) -> Iterator[Metric]:
    sampled = CounterMetricFamily("swarm_sampled_tokens", "Tokens that came from the engine.")
    sampled.add_metric([], traffic.sampled_tokens)
    yield sampled
    calls = CounterMetricFamily("swarm_calls", "Calls of agents that are over.", labels=["outcome"])
    for outcome, count in sorted(traffic.calls.items()):
        calls.add_metric([outcome.value], count)
    yield calls
    bounds = [*map(str, CALL_BOUNDS_S), "+Inf"]
    yield HistogramMetricFamily(
        "swarm_call_duration_seconds",
        "Answered calls, held time included.",
        buckets=list(zip(bounds, accumulate(traffic.call_seconds), strict=True)),
        sum_value=traffic.call_seconds_sum,
    )
    ended = CounterMetricFamily(
        "swarm_episodes_ended", "Episodes that ended.", labels=["kind", "outcome"]
    )
    for (kind, state), count in sorted(traffic.episodes.items()):
        ended.add_metric([kind.value, state.value], count)
    yield ended
    booked = CounterMetricFamily(
        "swarm_tokens_booked",
        "Sampled tokens of completed steps by what became of them.",
        labels=["fate", "reason"],
    )
    for key, count in sorted(traffic.booked_tokens.items()):
        fate, _, reason = key.partition(":")
        booked.add_metric([fate, reason], count)
    yield booked
    drift = CounterMetricFamily("swarm_divergences", "Diverged prompts of completed steps.")
    drift.add_metric([], traffic.divergences)
    yield drift


def _last_step(last: StepMetrics) -> Iterator[Metric]:
    yield from _gauge("last_step", "The step that these values are of.", last.step)
    yield from _gauge("last_step_updated", "1 when the weights moved.", float(last.updated))
    for field, text in LAST_STEP.items():
        name = f"{field.removesuffix('_s')}_seconds" if field.endswith("_s") else field
        yield from _gauge(f"last_step_{name}", text, getattr(last, field))
