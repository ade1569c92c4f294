"""``swarm serve``: reads the configuration file, wires the engines and runs the server in the foreground."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


class EngineName(StrEnum):
    """Engines that a server can be bound to."""

    TORCH = "torch"
    VERL = "verl"
    TOY = "toy"


def register(app: typer.Typer) -> None:
    """Add ``serve`` to ``app``."""
    app.command("serve")(serve_command)


PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0 = any free one.")
]
HostOption = Annotated[
    str,
    typer.Option(
        help="Address to listen on; anything but loopback takes TLS (or --insecure-http)."
    ),
]
StateDirOption = Annotated[
    Path, typer.Option(help="Folder for the journal, checkpoints and tokens.json.")
]
ConfigOption = Annotated[
    Path | None, typer.Option(help="Training configuration, .json, .toml or .yaml.")
]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        help="Run this engine only; --config need not name it, other configurations must."
    ),
]
StartOption = Annotated[bool, typer.Option("--start", help="Boot the engine at once.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in the state directory.")
]
ReadyFileOption = Annotated[
    Path | None, typer.Option(help="Write {url, port, pid, state_dir} here once listening.")
]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Messages on stderr.")]
TrustProxyOption = Annotated[
    bool, typer.Option("--trust-proxy", help="Believe X-Forwarded-Proto and -Host.")
]
TlsCertOption = Annotated[
    Path | None, typer.Option(help="Certificate (PEM, may hold the chain): serve HTTPS.")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option(help="The certificate's key (PEM, no password).")
]
InsecureHttpOption = Annotated[
    bool,
    typer.Option(
        "--insecure-http",
        help="Send tokens in clear text over a network; only where you trust all of it.",
    ),
]
AnnounceOption = Annotated[
    str | None, typer.Option(metavar="HUB_URL", help="Tell this hub that the server exists.")
]
AnnounceTokenFileOption = Annotated[
    Path | None, typer.Option(help="File with the hub's worker token.")
]
AnnounceUrlOption = Annotated[
    str | None,
    typer.Option(help="Where the hub's clients reach this server, if not where it listens."),
]
RedactEnvOption = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="More environment variables (A,B) whose values logs and traces must not show; "
        "those called *_KEY, *_TOKEN, *_SECRET, *_PASSWORD are hidden anyway.",
    ),
]


def serve_command(
    port: PortOption = 8377,
    host: HostOption = "127.0.0.1",
    state_dir: StateDirOption = Path(".swarm"),
    config: ConfigOption = None,
    engine: EngineOption = None,
    start: StartOption = False,
    resume: ResumeOption = False,
    ready_file: ReadyFileOption = None,
    log_level: LogLevelOption = LogLevel.INFO,
    trust_proxy: TrustProxyOption = False,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    insecure_http: InsecureHttpOption = False,
    announce: AnnounceOption = None,
    announce_token_file: AnnounceTokenFileOption = None,
    announce_url: AnnounceUrlOption = None,
    redact_env: RedactEnvOption = "",
) -> None:
    """Run a swarm server in the foreground until SIGTERM or Ctrl-C.

    The server starts OFFLINE and without a model, unless --config and --start (or --resume) are given. Exit codes: 0 stopped,
    2 the port, the state directory, the certificate or the configuration cannot be used.
    """
    from swarm.cli.edge import registry_folder
    from swarm.protocol.errors import SwarmError
    from swarm.server.redaction import secret_variables
    from swarm.server.serve import serve
    from swarm.server.serve_options import ServeOptions
    from swarm.triggers import ENVIRONMENT, arm

    arm(os.environ.get(ENVIRONMENT, ""))
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
            config=None if config is None else read_config(config, engine),
            start=start,
            resume=resume,
            ready_file=ready_file,
            trust_proxy=trust_proxy,
            tls_cert=tls_cert,
            tls_key=tls_key,
            insecure_http=insecure_http,
            registry=registry_folder(os.environ),
            announce=announce,
            announce_token_file=announce_token_file,
            announce_url=announce_url,
            secrets=secret_variables(os.environ, _names(redact_env)),
        )
        serve(options, engine_factory(state_dir, engine))
    except SwarmError as error:
        print(f"swarm serve: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_SETUP) from None


def read_config(path: Path, engine: EngineName | None = None) -> TrainConfig:
    """Read a ``TrainConfig`` from a file, as ``swarm config`` does; ``engine`` is what it means when it names none.

    Raises:
        ConfigError: The file cannot be read or a value in it is wrong.
    """
    from swarm.cli.settings import read_mapping
    from swarm.protocol.config import TrainConfig
    from swarm.server.routes.bodies import validate_config

    values = read_mapping(path)
    if engine is not None:
        values = {"engine": engine.value, **values}
    return validate_config(TrainConfig, values)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def engine_factory(state_dir: Path, only: EngineName | None = None) -> Callable[[str], Engine]:
    """Return what makes engines, not yet booted, by their name in the configuration (``engine``).

    With ``only`` it raises ``ConfigError`` for any other name. Engines of one state directory share a nonce, so that the next
    one can free what a dead one left.
    """
    from swarm.server.engine_verl.nonces import state_nonce

    nonce = state_nonce(state_dir)

    def make(name: str) -> Engine:
        if only is not None and name != only.value:
            from swarm.protocol.errors import ConfigError

            raise ConfigError(
                f"This server runs the engine {only.value!r} only; the configuration names {name!r}.",
                hint=f"Set engine: {only.value}, or start a server without --engine.",
            )
        return _make_engine(name, nonce)

    return make


def _make_engine(name: str, nonce: str) -> Engine:
    if name == "toy":
        from swarm.testing import ToyEngine

        return ToyEngine()
    from swarm.server.engine.host import EngineHost

    if name == "verl":
        return EngineHost("swarm.server.engine_verl.child", {"SWARM_ENGINE_NONCE": nonce})
    return EngineHost()
