"""The edge of the client commands: where the server and the token come from, and how failures are told.

Only here is the environment read. Tokens never appear in argv, in output or in errors.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from swarm.plain import plain
from swarm.protocol.errors import AuthError, ConfigError, ServerUnreachable, SwarmError

if TYPE_CHECKING:
    from swarm.client.client import SwarmClient

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3

DEFAULT_URL = "http://127.0.0.1:8377"
DEFAULT_TOKENS = Path(".swarm/tokens.json")
"""Where ``swarm serve`` puts its tokens when it is started without options."""

ServerOption = Annotated[
    str | None,
    typer.Option("--server", help=f"Address of the server [env SWARM_URL; default {DEFAULT_URL}]."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help=f"File with a token, or a server's tokens.json [env SWARM_TOKEN; default {DEFAULT_TOKENS}].",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, for failures too.")
]


def server_url(given: str | None) -> str:
    """The server's address: the flag, else ``SWARM_URL``, else where ``swarm serve`` listens by default."""
    return given or os.environ.get("SWARM_URL") or DEFAULT_URL


def read_secret(path: Path | None, variable: str, what: str) -> str:
    """A token: of the file, else of the environment's ``variable``.

    Raises:
        AuthError: neither has one.
    """
    from_env = os.environ.get(variable, "").strip()
    if path is None and from_env:
        return from_env
    try:
        token = path.read_text(encoding="utf-8").strip() if path is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise AuthError(
            f"{what} cannot be read from {str(path)!r}: {why}.",
            hint="Give --token-file.",
        ) from error
    if not token:
        raise AuthError(
            f"There is no token: {what}.", hint=f"Give --token-file, or set {variable}."
        )
    return token


def read_token(token_file: Path | None) -> str:
    """The token: of the file, else ``SWARM_TOKEN``, else of a server started in this folder.

    Raises:
        AuthError: none of them has one.
    """
    from_env = os.environ.get("SWARM_TOKEN", "").strip()
    if token_file is None and from_env:
        return from_env
    path = token_file or DEFAULT_TOKENS
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise AuthError(
            f"There is no token: {str(path)!r} cannot be read ({why}) and SWARM_TOKEN is not set.",
            hint="Give --token-file; `swarm serve` writes tokens.json into its --state-dir.",
        ) from error
    token = _pick(text)
    if not token:
        raise AuthError(
            f"{str(path)!r} holds no token.",
            hint="Put the token alone in the file, or give tokens.json.",
        )
    return token


def _pick(text: str) -> str:
    """The text itself, or the strongest token of a server's ``tokens.json``."""
    if not text.startswith("{"):
        return text
    try:
        found = cast("dict[str, Any]", json.loads(text))
    except ValueError:
        return ""
    return next((str(found[name]) for name in ("admin", "client", "eval") if found.get(name)), "")


def registry_folder(environ: Mapping[str, str]) -> Path:
    """Where the servers of this user on this machine are listed: below ``XDG_STATE_HOME`` (default ``~/.local/state``)."""
    # The specification: a relative path is to be ignored.
    home = environ.get("XDG_STATE_HOME", "")
    root = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return root / "swarm" / "servers"


@contextmanager
def connected(
    server: str | None, token_file: Path | None, **settings: Any
) -> Generator[SwarmClient]:
    """A client for one command; closed at its end. ``settings`` are those of ``SwarmClient``.

    It acts as the client of ``SWARM_CLIENT_ID`` when that is set (to steer a server whose controller it is).
    """
    from swarm.client.client import SwarmClient

    settings = {"client_id": os.environ.get("SWARM_CLIENT_ID") or None} | settings
    with SwarmClient(server_url(server), read_token(token_file), **settings) as client:
        yield client


Exits = Mapping[type[SwarmError], int]

EXITS: Exits = {
    ServerUnreachable: EXIT_UNREACHABLE,
    ConfigError: EXIT_USAGE,
    SwarmError: EXIT_ERROR,
}
"""Exit code by class of error; the first that fits counts. Wrong arguments (``client_usage``) leave by 2."""


@contextmanager
def reported(*, as_json: bool, exits: Exits = EXITS) -> Generator[None]:
    """Tell a ``SwarmError`` as ``error:`` and ``hint:`` on stderr (or one JSON document on stdout) and leave by its exit code."""
    try:
        yield
    except SwarmError as error:
        tell(error, as_json=as_json)
        code = next((code for cls, code in exits.items() if isinstance(error, cls)), EXIT_ERROR)
        usage = code == EXIT_ERROR and error.code == "client_usage"
        raise typer.Exit(EXIT_USAGE if usage else code) from None


def tell(error: SwarmError, *, as_json: bool) -> None:
    """Write one error where it belongs."""
    if as_json:
        body = {"code": error.code, "message": error.message, "hint": error.hint}
        print(json.dumps({"error": body}))
        return
    print(f"error: {plain(error.message, newlines=True)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {plain(error.hint, newlines=True)}", file=sys.stderr)
