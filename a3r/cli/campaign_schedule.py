"""``a3r campaign schedule``: start a goal again and again, as a crontab says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from a3r.cli.edge import JsonOption, emit, hub, reported, say
from a3r.core.types import ReviewMode

Json = dict[str, Any]


def schedule(
    goal: Annotated[
        Path | None, typer.Argument(help="goal.md, or the folder that holds one.")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(help="minute hour day-of-month month day-of-week, e.g. '0 2 * * 1'."),
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Of the cron expression, e.g. Europe/Berlin.")
    ] = "UTC",
    review: Annotated[
        ReviewMode | None, typer.Option(help="Who approves; default: as the goal says.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Show the schedules and what became of them.")
    ] = False,
    remove: Annotated[
        str | None, typer.Option(help="Forget this schedule; its campaigns go on.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a goal again and again (periodic baselines), list such schedules, or remove one.

    The daemon starts them, one campaign of a schedule at a time; the goal is read anew each time. A firing that no daemon saw is
    made up within the hour, and else told as missed. Exit codes: 0 done, 2 the goal or the expression has mistakes.
    """
    with reported(as_json=as_json):
        if show:
            _list(as_json=as_json)
        elif remove is not None:
            from a3r.hub.client import segment

            with hub() as client:
                gone = client.post(f"schedules/{segment(remove)}/remove")
            emit({"removed": gone}, [f"schedule {gone['id']} is gone"], as_json=as_json)
        elif goal is not None and cron is not None:
            _add(goal, cron, timezone, review, as_json=as_json)
        else:
            raise typer.BadParameter("give a GOAL and --cron, or --list, or --remove ID")


def _add(goal: Path, cron: str, timezone: str, review: ReviewMode | None, *, as_json: bool) -> None:
    from a3r.cli.daemon.starting import ensure_daemon
    from a3r.cli.edge import workspace_or_new
    from a3r.leader.cron import Cron
    from a3r.leader.goal_parsing import goal_file, goal_text, parse_goal

    Cron(cron, timezone)
    file = goal_file(goal).absolute()
    spec = parse_goal(goal_text(file), file)
    if (review or spec.review) is not ReviewMode.NONE:
        say("note: each campaign will wait for a person's review; --review none lets it run")
    body: Json = {"goal_path": str(file), "cron": cron, "timezone": timezone}
    if review is not None:
        body["review"] = review.value
    with ensure_daemon(workspace_or_new()) as client:
        made = _with_next(client.post("schedules", body))
    emit({"schedule": made}, [f"schedule {made['id']}: next {made['next']}"], as_json=as_json)


def _list(*, as_json: bool) -> None:
    with hub() as client:
        found = [_with_next(row) for row in client.get("schedules")["schedules"]]
    lines: list[str] = []
    for row in found:
        lines.append(f"{row['id']}  {row['cron']}  {row['timezone']}  {row['goal_path']}")
        lines.append(f"  next: {row['next']}")
        lines += [f"  {line}" for line in row["detail"].splitlines()]
    emit({"schedules": found}, lines or ["no schedule yet"], as_json=as_json)


def _with_next(row: Json) -> Json:
    """The schedule with its next due time in its own zone."""
    import time
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from a3r.leader.cron import Cron

    at = Cron(row["cron"], row["timezone"]).after(max(time.time(), row["fired_at"] or 0.0))
    zone = ZoneInfo(row["timezone"])
    when = "never" if at is None else f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M %Z}"
    return {**row, "next": when, "next_at": at}
