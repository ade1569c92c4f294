"""SwanLab. Its library writes in the background, and keeps all of it in files of its own, which tell what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from swarm.loggers.leveldb import records
from swarm.loggers.sink import RunOptions

swanlab: Any = import_module("swanlab")


def open_sink(options: RunOptions) -> SwanLabSink:
    """Begin or resume the run of that id; nothing of this machine (console, hardware, packages) is collected."""
    settings = swanlab.Settings
    swanlab.merge_settings(
        settings(
            interactive=False,
            terminal=settings.Terminal(proxy_type="none"),
            probe=settings.Probe(
                hardware=False,
                runtime=False,
                requirements=False,
                conda=False,
                git=False,
                monitor=False,
            ),
        )
    )
    folder = options.folder / options.run_id  # its own folder names do not tell runs apart
    folder.mkdir(parents=True, exist_ok=True)
    last = _last_step_in(folder)
    run = swanlab.init(
        project=options.project,
        id=options.run_id,
        name=options.run_id,
        resume="allow",
        mode="offline" if options.offline else "online",
        log_dir=str(folder),
        config=dict(options.config),
    )
    return SwanLabSink(run, last)


def _last_step_in(folder: Path) -> int:
    """Return the largest step in the files of earlier sessions."""
    message: Any = import_module("swanlab.proto.swanlab.record.v1.record_pb2").Record
    last = 0
    for path in folder.glob("run-*/*.swanlab"):
        for data in records(path):
            record = message.FromString(data)
            if record.HasField("scalar"):
                last = max(last, int(record.scalar.step))
    return last


class SwanLabSink:
    """One SwanLab run."""

    def __init__(self, run: Any, last: int) -> None:
        self._run: Any = run
        self._last = last

    def last_step(self) -> int:
        """Return what its files had when the run was opened."""
        return self._last

    def write(self, step: int, scalars: Mapping[str, float], at: float) -> None:
        """Hand one step to the library."""
        self._run.log({**scalars, "swarm/finished_at": at}, step=step)

    def close(self) -> None:
        """Wait until everything is written."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
