"""``swarm serve``: reads the configuration file, wires the engines and runs the server in the foreground."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from swarm.protocol.config import TrainConfig
    from swarm.server.ports import Engine

EXIT_SETUP = 2


class LogLevel(StrEnum):
    """How much goes to stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register(app: typer.Typer) -> None:
    """Add ``serve`` to ``app``."""
    app.command("serve")(serve_command)


def serve_command(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 = any free one.")
    ] = 8377,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but loopback sends tokens in clear.")
    ] = "127.0.0.1",
    state_dir: Annotated[
        Path, typer.Option(help="Folder for the journal, checkpoints and tokens.json.")
    ] = Path(".swarm"),
    config: Annotated[
        Path | None, typer.Option(help="Training configuration, .json or .toml.")
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Boot the engine at once.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the state directory.")
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write {url, port, pid, state_dir} here once listening.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="Messages on stderr.")] = LogLevel.INFO,
    trust_proxy: Annotated[
        bool, typer.Option("--trust-proxy", help="Believe X-Forwarded-Proto and -Host.")
    ] = False,
) -> None:
    """Run a swarm server in the foreground until SIGTERM or Ctrl-C.

    The server starts OFFLINE and without a model, unless --config and --start (or --resume) are given. Exit codes: 0 stopped,
    2 the port, the state directory or the configuration cannot be used.
    """
    from swarm.protocol.errors import SwarmError
    from swarm.server.serve import ServeOptions, serve

    logging.basicConfig(
        level=log_level.value.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        options = ServeOptions(
            state_dir=state_dir,
            host=host,
            port=port,
            config=None if config is None else read_config(config),
            start=start,
            resume=resume,
            ready_file=ready_file,
            trust_proxy=trust_proxy,
        )
        serve(options, make_engine)
    except SwarmError as error:
        print(f"swarm serve: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_SETUP) from None


def read_config(path: Path) -> TrainConfig:
    """Read a ``TrainConfig`` from a ``.toml`` file, or from JSON by any other name.

    Raises:
        ConfigError: The file cannot be read or a value in it is wrong.
    """
    from swarm.protocol.config import TrainConfig
    from swarm.protocol.errors import ConfigError
    from swarm.server.routes.bodies import validate_config

    try:
        text = path.read_text(encoding="utf-8")
        data: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(
            f"The file {str(path)!r} cannot be read: {error.strerror}.", hint="Check --config."
        ) from error
    except ValueError as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ConfigError(
            f"The file {str(path)!r} is not {kind}: {error}.", hint="Use .json or .toml."
        ) from error
    return validate_config(TrainConfig, data)


def make_engine(name: str) -> Engine:
    """Return a new, not yet booted engine by its name in the configuration (``engine``)."""
    if name == "toy":
        from swarm.testing import ToyEngine

        return ToyEngine()
    from swarm.server.engine.host import EngineHost

    return EngineHost()
