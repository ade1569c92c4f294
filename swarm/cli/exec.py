"""``swarm exec``: run any program as one episode, through environment variables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarm.cli.edge import JsonOption, ServerOption, TokenFileOption, connected, reported
from swarm.protocol.errors import SwarmError
from swarm.protocol.states import EpisodeKind

if TYPE_CHECKING:
    from swarm.client.exec import ExecResult

EXIT_ERROR = 121
EXIT_NO_REWARD = 122
EXIT_TRAINING_COMPLETE = 123
EXIT_TIMED_OUT = 124
EXIT_NOT_ACCEPTED = 125
EXIT_NOT_FOUND = 127


def register(app: typer.Typer) -> None:
    """Add ``exec`` to ``app``."""
    app.command("exec", context_settings={"ignore_unknown_options": True})(exec_command)


def exec_command(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The program.")],
    task_id: Annotated[str, typer.Option(help="The task; episodes of one id form a group.")],
    task_set: Annotated[str, typer.Option(help="Name of the task's set.")] = "default",
    evaluate: Annotated[bool, typer.Option("--eval", help="An episode that never trains.")] = False,
    reward_file: Annotated[
        Path | None, typer.Option(help="The program writes its reward here.")
    ] = None,
    timeout_s: Annotated[float | None, typer.Option(help="Stop the program after this.")] = None,
    grant_timeout_s: Annotated[
        float, typer.Option(help="Wait this long for the server to need an episode.")
    ] = 600.0,
    server: ServerOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run CMD as one episode: it finds the model through variables of its environment.

    These are OPENAI_BASE_URL and OPENAI_API_KEY (also OPENAI_API_BASE), or ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.
    The reward is the last line of CMD's stdout, {"reward": 1.0} (with "metrics" if you like), or what it wrote to
    --reward-file. CMD's stdout passes through (to stderr with --json). SWARM_TASK_ID and SWARM_EPISODE_ID are set too.

    Exit codes: 0 finished and accepted; CMD's own code when it failed (the episode is aborted); 2 wrong usage;
    121 no server, no power or another refusal; 122 no usable reward (aborted); 123 training is complete, nothing was run;
    124 CMD ran longer than --timeout-s (aborted); 125 finished too late for its step; 127 CMD cannot be started.
    """
    from swarm.client.errors import ProgramNotStarted, TrainingComplete
    from swarm.client.exec import ExecRequest, run_program

    request = ExecRequest(
        command=command,
        task_id=task_id,
        task_set=task_set,
        kind=EpisodeKind.EVAL if evaluate else EpisodeKind.TRAIN,
        # The token is for this process; the program gets the key of its own episode.
        environ={k: v for k, v in os.environ.items() if k != "SWARM_TOKEN"},
        reward_file=reward_file,
        timeout_s=timeout_s,
        grant_timeout_s=grant_timeout_s,
    )
    output = sys.stderr.buffer if as_json else sys.stdout.buffer
    with (
        reported(
            as_json=as_json,
            exits={
                TrainingComplete: EXIT_TRAINING_COMPLETE,
                ProgramNotStarted: EXIT_NOT_FOUND,
                SwarmError: EXIT_ERROR,
            },
        ),
        connected(server, token_file) as client,
    ):
        result = run_program(client, request, output)
    _leave(_document(result), _sentence(result), as_json=as_json)
    raise typer.Exit(_exit_code(result))


def _exit_code(result: ExecResult) -> int:
    if result.timed_out:
        return EXIT_TIMED_OUT
    if result.returncode != 0:
        # A signal, as a shell tells it.
        return result.returncode if result.returncode > 0 else 128 - result.returncode
    if result.reply is None:
        return EXIT_NO_REWARD
    return 0 if result.reply.accepted else EXIT_NOT_ACCEPTED


def _document(result: ExecResult) -> dict[str, Any]:
    reply = result.reply
    return {
        "episode_id": result.episode_id,
        "returncode": result.returncode,
        "reward": result.reward,
        "metrics": dict(result.metrics or {}),
        "accepted": bool(reply and reply.accepted),
        "step": reply.step if reply else None,
        "problem": result.problem or (reply.reason if reply and not reply.accepted else ""),
    }


def _sentence(result: ExecResult) -> str:
    document = _document(result)
    if not document["accepted"]:
        return f"Episode {result.episode_id} does not count: {document['problem']}."
    return f"Episode {result.episode_id} finished with reward {result.reward}."


def _leave(document: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(document))
    else:
        print(sentence, file=sys.stderr)
