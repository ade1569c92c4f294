"""The ``a3r`` command: the only place that wires everything. One module per noun, imported only when it is asked for.

A module offers ``register(app: typer.Typer) -> None``. ``a3r --help`` shows the one-line helps below without importing
any of them, so it answers at once.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

NOUNS: dict[str, tuple[str, str]] = {
    "campaign": (
        "a3r.cli.campaign",
        "Studies: start, watch, steer, verify.",
    ),
    "blueprint": (
        "a3r.cli.blueprint",
        "Planned experiments: read, approve.",
    ),
    "findings": ("a3r.cli.findings", "What earlier campaigns established: search."),
    "run": ("a3r.cli.run", "Single runs: explain, logs, attach."),
    "worker": ("a3r.cli.worker", "Run a worker on this host."),
    "host": ("a3r.cli.host", "GPU hosts over SSH: add, check, drain, remove."),
    "pool": ("a3r.cli.pool", "Clusters that are asked for workers."),
    "daemon": ("a3r.cli.daemon.commands", "The workspace's daemon: status, stop."),
    "doctor": ("a3r.cli.doctor", "Check this machine and workspace, with hints."),
    "config": ("a3r.cli.config", "Show the resolved settings: show."),
}
"""Noun -> (module, one-line help), in the order of ``--help``."""

HELP = (
    "a3r turns a research goal into a finished, checkable study of agentic reinforcement learning. "
    "Begin with 'a3r doctor', then 'a3r campaign check goal.md' and 'a3r campaign start goal.md'. "
    "Exit codes: 0 done, 1 failed, 2 bad input, 3 the state does not allow it, 4 daemon not reachable or token refused, "
    "5 verification failed, 130 interrupted. With --json, stdout carries exactly one JSON document, for failures too."
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line given by ``argv`` (default: the process's own); leaves by ``SystemExit``."""
    args = list(sys.argv[1:] if argv is None else argv)
    options = args[: args.index("--")] if "--" in args else args
    sys.exit(_run(build_app(args), args, as_json="--json" in options))


def build_app(args: Sequence[str]) -> typer.Typer:
    """Return the app for ``args``: the noun named first is imported, the others are only listed."""
    app = new_group(HELP)
    app.callback()(_root)
    asked = next((arg for arg in args if not arg.startswith("-")), "")
    for name, (module, summary) in NOUNS.items():
        if name == asked:
            import_module(module).register(app)
        else:
            app.command(name, help=summary)(_never_called)
    return app


def new_group(help_text: str) -> typer.Typer:
    """Return an empty group of commands in the house's form: plain text, the same for people, pipes and agents."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def _run(app: typer.Typer, args: list[str], *, as_json: bool) -> int:
    """Run and return the exit code; wrong usage and defects keep to the ``--json`` contract too."""
    try:
        code: Any = typer.main.get_command(app).main(
            args=args, prog_name="a3r", standalone_mode=False
        )
    except (KeyboardInterrupt, typer.Abort):
        _tell("interrupted", "Interrupted.", "", as_json=as_json)
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost edge: everything becomes an exit code
        return _failed(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def _failed(error: Exception, *, as_json: bool) -> int:
    # The exceptions of usage come from typer's own copy of click or from click itself, by version: known by their form.
    show = getattr(error, "show", None)
    message = getattr(error, "format_message", None)
    if callable(show) and callable(message):
        if type(error).__name__ == "NoArgsIsHelpError":
            show()
        else:
            _tell("usage", str(message()), _usage_hint(error), as_json=as_json)
        return int(getattr(error, "exit_code", EXIT_USAGE))
    traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}"
    hint = "This is a defect of a3r: report it with the lines above."
    _tell("internal", text, hint, as_json=as_json)
    return EXIT_FAILED


def _usage_hint(error: Exception) -> str:
    context: Any = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "a3r")
    return f"'{path} --help' shows the usage."


def _tell(code: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message, "hint": hint}}))
        return
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def _root() -> None:
    """Keep the app a group, also when only one noun is known."""


def _never_called() -> None:
    raise AssertionError("a command that was only listed has been called")
