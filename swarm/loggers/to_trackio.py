"""trackio, in its local database (``TRACKIO_DIR``, its own default otherwise). The database is asked what it has."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from swarm.loggers.sink import RunOptions

trackio: Any = import_module("trackio")


def open_sink(options: RunOptions) -> TrackioSink:
    """Begin or resume the run of that name."""
    last = _last_step(options.project, options.run_id)
    run = trackio.init(
        project=options.project,
        name=options.run_id,
        resume="allow",
        config=dict(options.config),
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return TrackioSink(run, last)


def _last_step(project: str, run: str) -> int:
    logs = trackio.SQLiteStorage.get_logs(project, run)
    return max((int(entry["step"]) for entry in logs if entry.get("step") is not None), default=0)


class TrackioSink:
    """One trackio run."""

    def __init__(self, run: Any, last: int) -> None:
        self._run: Any = run
        self._last = last

    def last_step(self) -> int:
        """Return the largest step in the database when the run was opened."""
        return self._last

    def write(self, step: int, scalars: Mapping[str, float], at: float) -> None:
        """Hand one step to the library, which stores it a moment later."""
        self._run.log({**scalars, "swarm/finished_at": at}, step=step)

    def close(self) -> None:
        """Wait until everything is stored."""
        run, self._run = self._run, None
        if run is not None:
            trackio.finish()
