"""``swarm page``: the web page of an episode, by an address for a browser or as a file."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.protocol.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add ``page`` to ``app``."""
    app.command("page")(page_command)


def page_command(
    episode_id: Annotated[str, typer.Argument(metavar="EPISODE", help="The episode's id.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the whole page into this file instead.")
    ] = None,
    valid_s: Annotated[
        float, typer.Option(min=1.0, max=86_400.0, help="How long the address opens the page.")
    ] = 900.0,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="With --out: read a stopped server's folder instead of asking a server."),
    ] = None,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print an address that opens the page of an episode in a browser, or write the page into a file.

    The page shows every call as a tree, and each token with its log-probability, its author, whether it trained and why.
    Whoever has the address can read this one episode until it expires. The file needs no server and loads nothing.

    Exit codes: 0 done, 1 refused or no such episode, 2 wrong usage or the file cannot be written, 3 no answer.
    """
    from swarm.client import watching

    with reported(as_json=as_json):
        if state_dir is not None:
            if out is None:
                raise ConfigError("--state-dir makes a file.", hint="Give --out FILE.html too.")
            _written(out, stored_page(state_dir, episode_id), episode_id, as_json=as_json)
            return
        with connected(server, token_file) as client:
            if out is not None:
                page = client.send(watching.page(episode_id))
                _written(out, page, episode_id, as_json=as_json)
                return
            ticket = client.page_ticket(episode_id, valid_s)
            print(ticket.model_dump_json() if as_json else ticket.url)


def stored_page(state_dir: Path, episode_id: str) -> bytes:
    """Return the whole page of an episode from the journal of a server that does not run.

    Raises:
        ConfigError: The folder holds no journal.
        JournalFailed: A server runs on it, or the journal is damaged.
        NotFoundError: No such episode.
    """
    from swarm.server.journal.journal import JOURNAL_FILE, Journal
    from swarm.server.model_files import resolve_model
    from swarm.server.page.render import render_page
    from swarm.server.page.view import Choice
    from swarm.server.service.traces import past_trace
    from swarm.server.tracking.tokenizer import ChatTokenizer

    path = state_dir.expanduser() / JOURNAL_FILE
    if not path.is_file():
        raise ConfigError(
            f"There is no journal in {str(state_dir)!r}.", hint="Give a server's --state-dir."
        )
    journal = Journal.open(path)
    try:
        trace = past_trace(journal, episode_id, calls=True)
        config = journal.config_of(episode_id)
    finally:
        journal.close()
    tokenizer = None
    with contextlib.suppress(ConfigError):  # the model's folder may be gone: ids are shown then
        if config is not None:
            tokenizer = ChatTokenizer.from_folder(resolve_model(config.model.path))
    return render_page(trace, tokenizer, Choice(budget=None)).encode()


def _written(out: Path, page: bytes, episode_id: str, *, as_json: bool) -> None:
    _write(out, page)
    if as_json:
        print(json.dumps({"episode_id": episode_id, "path": str(out)}))
    else:
        print(f"wrote {out}", file=sys.stderr)


def _write(path: Path, page: bytes) -> None:
    try:
        path.write_bytes(page)
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be written: {error.strerror}.", hint="Choose another --out."
        ) from error
