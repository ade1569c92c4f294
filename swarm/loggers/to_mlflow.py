"""MLflow, at a tracking address or in a SQLite file. Its store is asked what it has, so a restart is exact."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from swarm.loggers.sink import RunOptions

mlflow: Any = import_module("mlflow")
entities: Any = import_module("mlflow.entities")

TAG = "swarm.run_id"
MARK = "swarm/step"
"""Of every step; the last metric of a batch that is written."""
PARAMS_AT_ONCE = 100
"""MLflow takes so many in one request."""


def open_sink(options: RunOptions) -> MlflowSink:
    """Find the run with our tag, or make it (with the configuration as its parameters)."""
    uri = options.uri or f"sqlite:///{(options.folder / 'mlflow.db').absolute()}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(options.project)
    if experiment is None:
        # Nothing is stored there by us; without a place of its own MLflow makes a folder where it is started.
        place = None if options.uri else (options.folder / "artifacts").absolute().as_uri()
        experiment_id = client.create_experiment(options.project, artifact_location=place)
    else:
        experiment_id = experiment.experiment_id
    found = client.search_runs([experiment_id], f"tags.`{TAG}` = '{options.run_id}'")
    run = found[0] if found else _new_run(client, experiment_id, options)
    return MlflowSink(client, run.info.run_id)


def _new_run(client: Any, experiment_id: str, options: RunOptions) -> Any:
    run = client.create_run(experiment_id, run_name=options.run_id, tags={TAG: options.run_id})
    params = [entities.Param(key, str(value)) for key, value in options.config.items()]
    for start in range(0, len(params), PARAMS_AT_ONCE):
        client.log_batch(run.info.run_id, params=params[start : start + PARAMS_AT_ONCE])
    return run


class MlflowSink:
    """One MLflow run."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._open = True

    def last_step(self) -> int:
        """Return the largest step whose last metric is in the store."""
        history = self._client.get_metric_history(self._run_id, MARK)
        return max((int(metric.step) for metric in history), default=0)

    def write(self, step: int, scalars: Mapping[str, float], at: float) -> None:
        """Store one step in one request."""
        if not self._open:
            return
        named = sorted(scalars.items(), key=lambda item: item[0] == MARK)
        metrics = [entities.Metric(name, value, round(at * 1000), step) for name, value in named]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """Mark the run as finished; opening it again goes on with it."""
        if self._open:
            self._open = False
            self._client.set_terminated(self._run_id)
