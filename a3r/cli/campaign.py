"""``a3r campaign``: start check list show watch resume stop report verify export reuse amend schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, hub, reported, say, table
from a3r.core.types import ReviewMode

Json = dict[str, Any]

CampaignArgument = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="Id, unique beginning of an id, or name.")
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch/--no-watch",
        help="Stay and show what happens; Ctrl-C detaches, a second one within 3 s asks for a stop.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    from a3r.cli import (
        campaign_amend,
        campaign_bundle,
        campaign_report,
        campaign_reuse,
        campaign_schedule,
    )

    group = new_group("Studies: from a goal.md to a verified report.")
    group.command("start")(start)
    group.command("check")(check)
    group.command("list")(list_campaigns)
    group.command("show")(show)
    group.command("watch")(watch)
    group.command("resume")(resume)
    group.command("stop")(stop)
    group.command("report")(campaign_report.report)
    group.command("verify")(campaign_report.verify)
    group.command("export")(campaign_bundle.export)
    group.command("reuse")(campaign_reuse.reuse)
    group.command("amend")(campaign_amend.amend)
    group.command("schedule")(campaign_schedule.schedule)
    app.add_typer(group, name="campaign")


def start(
    goal: Annotated[Path, typer.Argument(help="goal.md, or the folder that holds one.")],
    review: Annotated[
        ReviewMode | None,
        typer.Option(help="Who approves blueprints before they run; default: as the goal says."),
    ] = None,
    watch: WatchOption = True,
    as_json: JsonOption = False,
) -> None:
    """Start a campaign and watch it to its report.

    The goal is checked first; the daemon is started when it does not run. Exit codes: 0 done and verified (or, with
    --no-watch, started), 1 stopped or blocked, 2 the goal has mistakes, 5 the report does not verify, 130 detached.
    """
    with reported(as_json=as_json):
        from a3r.cli.daemon.starting import ensure_daemon
        from a3r.cli.edge import workspace_or_new
        from a3r.cli.goal_reading import refuse_unreadable
        from a3r.cli.watch import watch_campaign
        from a3r.leader.goal_parsing import goal_file, goal_text

        file = goal_file(goal).absolute()
        text = goal_text(file)
        if refuse_unreadable(text, file):
            say("the goal is prose: the language model reads it first; `a3r campaign show` follows")
        else:
            _warn(file)
        ws = workspace_or_new()
        body: Json = {"goal_text": text, "goal_dir": str(file.parent)}
        if review is not None:
            body["review"] = review.value
        with ensure_daemon(ws) as client:
            made = client.post("campaigns", body)
        say(f"campaign {made['id']} started ({file})")
        if watch:
            watch_campaign(ws, made["id"], as_json=as_json)
        else:
            line = f"'a3r campaign watch {made['id']}' shows what happens."
            emit({"campaign": made}, [line], as_json=as_json)


def _warn(file: Path) -> None:
    from a3r.leader.goal_check import check_goal

    for warning in check_goal(file).warnings:
        say(f"warning: {warning}")


def check(
    goal: Annotated[Path, typer.Argument(help="goal.md, or the folder that holds one.")],
    again: Annotated[
        bool,
        typer.Option("--again", help="Have prose read anew, though it was read before."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what is understood of a goal, what is missing or odd, what it costs, and what it can resolve.

    A goal in prose is read by the language model of the settings (A3R_LLM); a campaign started from the same text is
    frozen on what was shown here. Starts nothing. Exit codes: 0 fine (warnings allowed), 2 it has mistakes.
    """
    with reported(as_json=as_json):
        from a3r.cli.goal_reading import checked

        body, reading = checked(goal, again=again)
        ok, mistakes = body["ok"], body["mistakes"]
        if not ok and as_json:
            hint = "Correct the lines named in mistakes."
            message = "\n".join(mistakes)
            body["error"] = {"code": "goal_invalid", "message": message, "hint": hint}
        emit(body, [*render_check(body), *reading], as_json=as_json)
        if not ok:
            if not as_json:
                say(f"error: {body['path']} has {len(mistakes)} mistake(s).")
                say("hint: correct them, then check again.")
            raise typer.Exit(2)


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def render_check(body: Json) -> list[str]:
    """The check for people."""
    lines = [body["path"], *(f"  {line}" for line in body["understood"])]
    lines += [f"mistake: {line}" for line in body["mistakes"]]
    lines += [f"warning: {line}" for line in body["warnings"]]
    if body["estimated_runs"]:
        lines.append(f"cost: {_span(*body['estimated_runs'])} runs")
    if body["estimated_episodes"]:
        lines.append(f"      {_span(*body['estimated_episodes'])} training episodes")
    if body["most_gpu_hours"]:
        hours = body["most_gpu_hours"]
        lines.append(f"      at most {hours:.1f} GPU hours, if every run took its whole time limit")
    if body["llm"]:
        lines.append(f"      {body['llm']}")
    if body["resolvable"]:
        lines.append(f"resolution: {body['resolvable']}")
    return lines


def list_campaigns(as_json: JsonOption = False) -> None:
    """List the campaigns of this workspace, oldest first."""
    with reported(as_json=as_json), hub() as client:
        body = client.get("campaigns")
        rows = [
            (c["id"], c["state"], c["stage"] or None, run_counts(c["runs"]), c["report_path"])
            for c in body["campaigns"]
        ]
        lines = table(rows, ("campaign", "state", "stage", "runs", "report"))
        emit(body, lines if rows else ["no campaign yet"], as_json=as_json)


def run_counts(runs: dict[str, int]) -> str:
    """``12 succeeded, 2 active``; ``-`` when there is none."""
    return ", ".join(f"{n} {state}" for state, n in runs.items()) or "-"


def show(
    campaign: CampaignArgument,
    trace: Annotated[
        bool, typer.Option("--trace", help="Everything that happened, in order of time.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show one campaign: state, stages with their questions, decisions, deviations, what waits for you."""
    from a3r.cli.campaign_screen import campaign_screen
    from a3r.hub.client import segment

    if trace:
        from a3r.cli.campaign_trace import show_trace

        with reported(as_json=as_json):
            show_trace(campaign, as_json=as_json)
        return
    with reported(as_json=as_json), hub() as client:
        body = client.get(f"campaigns/{segment(campaign)}")
        emit(body, campaign_screen(body), as_json=as_json)


def watch(campaign: CampaignArgument, as_json: JsonOption = False) -> None:
    """Show what happens, from the beginning, until the campaign is over.

    Exit codes: 0 done and verified, 1 stopped or blocked, 5 the report does not verify, 130 detached.
    """
    from a3r.cli.edge import workspace
    from a3r.cli.watch import watch_campaign
    from a3r.hub.client import segment

    with reported(as_json=as_json):
        with hub() as client:
            found = client.get(f"campaigns/{segment(campaign)}")
        watch_campaign(workspace(), found["id"], as_json=as_json)


def resume(
    campaign: CampaignArgument, watch: WatchOption = True, as_json: JsonOption = False
) -> None:
    """Let a blocked or paused campaign go on, and watch it. One that is under way is only watched."""
    from a3r.cli.edge import workspace
    from a3r.cli.watch import watch_campaign
    from a3r.hub.client import segment

    with reported(as_json=as_json):
        with hub() as client:
            body = client.post(f"campaigns/{segment(campaign)}/resume")
        if watch:
            watch_campaign(workspace(), body["id"], as_json=as_json)
        else:
            emit({"campaign": body}, [f"{body['id']} is {body['state']}"], as_json=as_json)


def stop(campaign: CampaignArgument, as_json: JsonOption = False) -> None:
    """Ask a campaign to stop: its attempts end, what was measured is kept. Safe to repeat."""
    from a3r.hub.client import segment

    with reported(as_json=as_json), hub() as client:
        body = client.post(f"campaigns/{segment(campaign)}/stop")
        asked = body["stop_requested_at"] is not None and body["state"] not in ("stopped", "done")
        words = "is stopping" if asked else f"is {body['state']}"
        emit({"campaign": body}, [f"{body['id']} {words}"], as_json=as_json)
