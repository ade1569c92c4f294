"""TensorBoard event files. A step is one record of the file, so that it is there whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from swarm.loggers.sink import RunOptions

_loading: Any = import_module("tensorboard.backend.event_processing.event_file_loader")
_event: Any = import_module("tensorboard.compat.proto.event_pb2")
_summary: Any = import_module("tensorboard.compat.proto.summary_pb2")
_writing: Any = import_module("tensorboard.summary.writer.event_file_writer")


def open_sink(options: RunOptions) -> TensorBoardSink:
    """Return a sink that adds a file to ``folder/<run_id>``."""
    return TensorBoardSink(options.folder / options.run_id)


class TensorBoardSink:
    """Writes one more event file each time it is opened; TensorBoard reads them as one run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._last = max(map(_last_step_of, sorted(folder.glob("*tfevents*"))), default=0)
        self._writer: Any = _writing.EventFileWriter(str(folder))

    def last_step(self) -> int:
        """Return the largest step of all complete records in the folder."""
        return self._last

    def write(self, step: int, scalars: Mapping[str, float], at: float) -> None:
        """Append one record and flush it to the file."""
        if self._writer is None:
            return
        values = [
            _summary.Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()
        ]
        summary = _summary.Summary(value=values)
        self._writer.add_event(_event.Event(wall_time=at, step=step, summary=summary))
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _last_step_of(path: Path) -> int:
    """A record that a crash cut short ends the file; the loader stops there."""
    return max((event.step for event in _loading.EventFileLoader(str(path)).Load()), default=0)
