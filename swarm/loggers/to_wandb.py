"""Weights & Biases. Its library writes in the background; its server, or its own files when offline, tell what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from swarm.loggers.leveldb import records
from swarm.loggers.sink import RunOptions

wandb: Any = import_module("wandb")


def open_sink(options: RunOptions) -> WandbSink:
    """Begin or resume the run of that id; nothing of this machine (console, code, statistics) is collected."""
    run = wandb.init(
        project=options.project,
        id=options.run_id,
        name=options.run_id,
        dir=str(options.folder),
        config=dict(options.config),
        resume="allow",
        mode="offline" if options.offline else "online",
        save_code=False,
        settings=wandb.Settings(
            console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True, silent=True
        ),
    )
    if options.offline:
        return WandbSink(run, _last_step_in(options.folder, options.run_id))
    return WandbSink(run, int(run.step) - 1 if run.resumed else 0)


def _last_step_in(folder: Path, run_id: str) -> int:
    """Return the largest step in the files of earlier offline sessions."""
    message: Any = import_module("wandb.proto.wandb_internal_pb2").Record
    last = 0
    for path in folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb"):
        for data in records(path):
            history = message.FromString(data).history
            if history.item:
                last = max(last, int(history.step.num))
    return last


class WandbSink:
    """One wandb run."""

    def __init__(self, run: Any, last: int) -> None:
        self._run: Any = run
        self._last = last

    def last_step(self) -> int:
        """Return what the service, or its files, had when the run was opened."""
        return self._last

    def write(self, step: int, scalars: Mapping[str, float], at: float) -> None:
        """Hand one step to the library."""
        self._run.log({**scalars, "swarm/finished_at": at}, step=step, commit=True)

    def close(self) -> None:
        """Wait until everything is written."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
