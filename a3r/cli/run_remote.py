"""What only the host of an attempt has: the log beyond what has arrived, the trace of an episode. Its worker is asked."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, hub, printable, reported
from a3r.core.errors import HostError, NotFound

if TYPE_CHECKING:
    from a3r.hub.client import HubClient

Json = dict[str, Any]
WAIT_S = 20.0
PAGE = 1 << 20
LONGEST_TEXT = 2000


def attempt_of(body: Json, ordinal: int | None) -> Json:
    """An attempt of a run: the last one, or the one with ``ordinal``.

    Raises:
        NotFound: there is none.
    """
    found = [a for a in body["attempts"] if ordinal is None or a["ordinal"] == ordinal]
    if not found:
        which = "no attempt yet" if ordinal is None else f"no attempt {ordinal}"
        raise NotFound(f"Run {body['id']} has {which}.", hint="'a3r run show' lists its attempts.")
    return found[-1]


def ask(client: HubClient, attempt_id: str, kind: str, **what: Any) -> Json:
    """What the worker that has the attempt answers.

    Raises:
        NotFound: it does not have what was asked for; or no worker has the attempt.
        HostError: it did not answer in time.
    """
    from a3r.hub.client import segment

    told = {"kind": kind, "wait_s": WAIT_S, **what}
    row = client.post(f"attempts/{segment(attempt_id)}/ask", told)
    result: Json = row["result"] or {}
    if row["state"] == "open":
        raise HostError(
            f"The worker of {attempt_id} did not answer within {WAIT_S:g} s.",
            hint="'a3r worker list' shows when it was last heard; what has arrived is in 'a3r run logs'.",
        )
    if "error" in result:
        raise NotFound(
            f"The worker of {attempt_id} says: {printable(str(result['error']))}",
            hint="'a3r run show' lists the attempt's logs; its episodes can be read while its server runs.",
        )
    return result


def remote_pages(client: HubClient, attempt_id: str, name: str, offset: int) -> Json:
    """A log from ``offset`` (negative: from its end) to where it ends now: ``data``, ``offset``, ``size``."""
    first = ask(client, attempt_id, "fetch_log", name=name, offset=offset, limit=PAGE)
    data = base64.b64decode(first["data_b64"])
    page = data
    while page and first["offset"] + len(data) < first["size"]:
        at = first["offset"] + len(data)
        more = ask(client, attempt_id, "fetch_log", name=name, offset=at, limit=PAGE)
        page = base64.b64decode(more["data_b64"])
        data += page
    return {"name": name, "offset": first["offset"], "size": first["size"], "data": data}


def trace(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Id, part of an id, label ('s1-b16 seed 3'), or blueprint with one run.",
        ),
    ],
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="Id of an episode.")],
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which attempt; default: the last.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show who said what in an episode of a run: its worker asks the swarm server, which must still run.

    Exit codes: 0 shown, 1 the worker does not answer, 2 no such run or episode.
    """
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.get(f"runs/{segment(run)}")
        found = attempt_of(body, attempt)
        told = ask(client, found["id"], "fetch_trace", episode_id=episode)["trace"]
        shown = {"run": body["id"], "attempt": found["ordinal"], "trace": told}
        emit(shown, trace_lines(told), as_json=as_json)


def trace_lines(told: Json) -> list[str]:
    """The episode in lines: what it is, then each call with the new messages and the reply."""
    rewards = "" if told.get("reward") is None else f", reward {told['reward']:g}"
    lines = [
        f"episode {told['episode_id']}: {told['kind']}, task {told['task_id']}, {told['state']}{rewards}"
    ]
    seen = 0
    for number, call in enumerate(told["calls"], 1):
        messages: list[Json] = call["messages"]
        # A call repeats what was said before it; a shorter one began anew.
        new = messages[seen:] if len(messages) > seen else messages
        lines.append(f"call {number} ({call['finish_reason']})")
        lines += [_said(message) for message in new]
        lines.append(_said({**call["reply"], "role": "reply"}))
        seen = len(messages) + 1
    return lines


def _said(message: Json) -> str:
    text = message.get("content")
    words = text if isinstance(text, str) else str(text)
    if message.get("tool_calls"):
        words = f"{words if text else ''} {message['tool_calls']}".strip()
    shown = printable(words if len(words) <= LONGEST_TEXT else f"{words[:LONGEST_TEXT]} [...]")
    return f"  {message.get('role', '?')}: {shown}"
