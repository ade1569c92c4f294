"""The ``swarm`` command. Each command lives in its own module and is imported only when it is the one asked for.

A command module offers ``register(app: typer.Typer) -> None`` and adds its command (or its group) to ``app``.
``swarm --help`` shows the one-line helps below without importing any of them, so it answers at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module

import typer

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("swarm.cli.serve", "Run a swarm server in the foreground."),
    "status": ("swarm.cli.status", "Show what a server is doing and who waits for whom."),
    "watch": ("swarm.cli.watch", "Look at a server while a run goes on."),
    "page": ("swarm.cli.page", "The web page of an episode, token by token."),
    "log": ("swarm.cli.log", "Follow a server's metrics into a logger's files or service."),
    "list": ("swarm.cli.servers", "List the servers of this machine, or those of a hub."),
    "config": ("swarm.cli.config", "Show, check or change a server's training configuration."),
    "controller": ("swarm.cli.controller", "Who steers a server: take or give back its lease."),
    "clients": ("swarm.cli.clients", "Show who is connected and what each client has done."),
    "doctor": ("swarm.cli.doctor", "What an engine needs of this machine, and what is missing."),
    "reap": ("swarm.cli.reap", "Free what a dead server's engine left on machine or cluster."),
    "exec": ("swarm.cli.exec", "Run any program as one episode, through environment variables."),
    "debug": (
        "swarm.cli.debug",
        "Run a program in one episode that never trains or idles out.",
    ),
}
"""Command -> (module, one-line help), in the order of ``--help``."""

HELP = (
    "The swarm's command line: a server that trains a model from the episodes run against its OpenAI-compatible URL, "
    "and the tools around it. Exit codes: 0 done, 1 the server or the episode said no, 2 wrong usage or setup."
)

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""What a wrong command line raises; typer gives it no name of its own."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line given by ``argv`` (default: the process's own); leaves by ``SystemExit``.

    With ``--json`` a wrong command line is told as one document on stdout, like every other failure.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    app = build_app(args)
    if "--json" not in _own(args):
        app(args=args, prog_name="swarm")
    try:
        code = app(args=args, prog_name="swarm", standalone_mode=False)
    except USAGE_ERROR as error:
        _tell_usage(error)
        code = 2
    except typer.Abort:
        code = 1
    sys.exit(code)


def _own(args: list[str]) -> list[str]:
    """Return the arguments that are ours: those behind ``--`` belong to the program that ``exec`` starts."""
    return args[: args.index("--")] if "--" in args else args


def _tell_usage(error: Exception) -> None:
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "swarm"
    body = {
        "code": "client_usage",
        "message": " ".join(error.format_message().split()),  # type: ignore[attr-defined]
        "hint": f"`{where} --help` shows how it is called.",
    }
    print(json.dumps({"error": body}))


def build_app(args: Sequence[str]) -> typer.Typer:
    """Return the app for ``args``: the command named first is imported, the others are only listed."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Plain text: the same for people, pipes and agents, and half the start-up time.
        rich_markup_mode=None,
    )
    app.callback()(_root)
    asked = next((arg for arg in args if not arg.startswith("-")), "")
    for name, (module, summary) in COMMANDS.items():
        if name == asked:
            import_module(module).register(app)
        else:
            app.command(name, help=summary)(_never_called)
    return app


def _root() -> None:
    """Keep the app a group, also when only one command is known."""


def _never_called() -> None:
    raise AssertionError("a command that was only listed has been called")
