"""What a logger must be able to do, and where each one is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Protocol

from swarm.loggers.errors import LoggerFailed
from swarm.protocol.errors import ConfigError, SwarmError


class LoggerName(StrEnum):
    """Loggers to choose from; the module ``swarm.loggers.to_<name>`` of each offers ``open_sink``."""

    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    SWANLAB = "swanlab"
    MLFLOW = "mlflow"
    TRACKIO = "trackio"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One run of one server, as a logger sees it."""

    run_id: str
    """``<run name>-<incarnation>``: the same over restarts of server and logger, another for a new run."""
    project: str
    folder: Path
    """Where files go; made when absent."""
    offline: bool = False
    """Write files only (wandb and swanlab; the others have no other way, or follow ``uri``)."""
    uri: str = ""
    """Tracking address of MLflow; empty = a SQLite file in ``folder``."""
    config: dict[str, str | float | bool] = field(default_factory=dict[str, str | float | bool])
    """The training configuration, flat."""


class Sink(Protocol):
    """One open run of one logger."""

    def last_step(self) -> int:
        """Return the largest step that the logger held of this run when it was opened, 0 for none.

        The logger itself is asked, not a note of ours: a crash may have come between its write and any note.
        """
        ...

    def write(self, step: int, scalars: Mapping[str, float], at: float) -> None:
        """Record one step whole; ``at`` is unix seconds."""
        ...

    def close(self) -> None:
        """Flush and end. Safe to call twice."""
        ...


def open_sink(name: LoggerName, options: RunOptions) -> Sink:
    """Open (or go on with) a run in the named logger.

    Raises:
        ConfigError: Its library is not installed.
        LoggerFailed: The library or its service refused.
    """
    try:
        module = import_module(f"swarm.loggers.to_{name.value}")
        options.folder.mkdir(parents=True, exist_ok=True)
        return module.open_sink(options)
    except ImportError as error:
        raise ConfigError(
            f"Logging to {name.value} needs its library ({error}).",
            hint=f"pip install 'a3r[{name.value}]'.",
        ) from error
    except SwarmError:
        raise
    except Exception as error:
        raise failed(name, "open the run", error) from error


def failed(name: LoggerName, action: str, error: Exception) -> LoggerFailed:
    """Return the error for a library that raised."""
    why = f"{type(error).__name__}: {error}".replace("\n", " ")[:500]
    return LoggerFailed(
        f"{name.value} could not {action}: {why}",
        hint="Check its login, its address and its folder; --offline writes files only.",
    )
