"""Watch a campaign to its end. Survives restarts of the daemon; ending the watch changes nothing for the campaign."""

from __future__ import annotations

import time
from typing import Any

import typer

from a3r.cli.campaign_screen import review_help, revision_help
from a3r.cli.daemon.starting import ended_in_order, ensure_daemon
from a3r.cli.edge import emit, say
from a3r.cli.progress import event_line
from a3r.cli.view import View, choose_view
from a3r.core.errors import A3RError, HubUnreachable
from a3r.core.workspace import Workspace
from a3r.hub.client import HubClient, segment

Json = dict[str, Any]

WAIT_S = 2.0
SECOND_PRESS_S = 3.0
BLOCKED_S = 3.0
OVER = ("done", "stopped")
EXIT_FAILED = 1
EXIT_DETACHED = 130


class CampaignEnded(A3RError):
    """The campaign ended (or waits for a person) without a report to be proud of."""

    code = "campaign_not_done"


def watch_campaign(workspace: Workspace, campaign_id: str, *, as_json: bool) -> None:
    """Show events until the campaign is over, then verify its report; leaves by ``typer.Exit`` unless all is well.

    Raises:
        CampaignEnded: it was stopped or is blocked.
        VerificationFailed: its report does not verify.
    """
    watcher = Watcher(workspace, campaign_id)
    while True:
        try:
            with choose_view() as view:
                campaign = watcher.follow(view)
        except KeyboardInterrupt:
            _detach(workspace, campaign_id, as_json=as_json)
            continue
        break
    _conclude(workspace, campaign, as_json=as_json)


class Watcher:
    """What has been seen; ``follow`` may be called again after an interruption."""

    def __init__(self, workspace: Workspace, campaign_id: str) -> None:
        self._workspace = workspace
        self._path = f"campaigns/{segment(campaign_id)}"
        self._seen = 0
        self._state: str | None = None
        self._told_review: list[str] = []
        self._told_revisions: list[Json] = []
        self._blocked_since: float | None = None
        self._away = False

    def follow(self, view: View) -> Json:
        """Return the campaign once it is over or stays blocked."""
        client: HubClient | None = None
        while True:
            try:
                client = client or self._connected(view)
                campaign = self._look(client, view)
            except HubUnreachable:
                if client is not None:
                    client.close()
                client = self._wait_for_daemon(view)
                continue
            if self._is_over(campaign):
                client.close()
                return campaign

    def _look(self, client: HubClient, view: View) -> Json:
        page = client.get(
            f"{self._path}/events", wait_s=WAIT_S, after_seq=self._seen, state=self._state
        )
        for event in page["events"]:
            text = event_line(event)
            if text is not None:
                view.line(text)
        self._seen = int(page["last_seq"])
        campaign: Json = page["campaign"]
        self._state = str(campaign["state"])
        if campaign["awaiting_review"] and self._state not in OVER:
            self._ask_for_review(client, view, campaign)
        view.state(campaign, client.get(f"{self._path}/runs", state="active")["runs"])
        return campaign

    def _ask_for_review(self, client: HubClient, view: View, campaign: Json) -> None:
        whole: Json = client.get(self._path)
        names: list[str] = whole["to_review"]
        revisions: list[Json] = whole["revisions_to_review"]
        if revisions and revisions != self._told_revisions:
            for line in revision_help(campaign["id"], revisions):
                view.line(line)
        self._told_revisions = revisions
        if names and names != self._told_review:
            view.line(f"{len(names)} blueprint(s) await your review: {', '.join(names)}")
            for line in review_help(campaign["id"], names[0]):
                view.line(f"  {line}")
        self._told_review = names

    def _is_over(self, campaign: Json) -> bool:
        if campaign["state"] != "blocked":
            self._blocked_since = None
            return campaign["state"] in OVER
        self._blocked_since = self._blocked_since or time.monotonic()
        return time.monotonic() - self._blocked_since > BLOCKED_S

    def _connected(self, view: View) -> HubClient:
        client = ensure_daemon(self._workspace)
        if self._away:
            view.line("note: connected to the daemon again; nothing was lost")
        self._away = False
        return client

    def _wait_for_daemon(self, view: View) -> HubClient | None:
        """A daemon that died is started again; one that somebody stopped is waited for."""
        stopped = ended_in_order(self._workspace)
        if not self._away:
            what = (
                "was stopped; any a3r command starts it"
                if stopped
                else "does not answer; starting it"
            )
            view.line(f"note: the daemon {what}. Attempts go on without it.")
        self._away = True
        time.sleep(1.0)
        return None if not stopped else self._found(view)

    def _found(self, view: View) -> HubClient | None:
        while ended_in_order(self._workspace):
            time.sleep(1.0)
        return self._connected(view)


class Detached(A3RError):
    """The person left; the campaign goes on."""

    code = "detached"
    exit_code = EXIT_DETACHED


def _detach(workspace: Workspace, campaign_id: str, *, as_json: bool) -> None:
    """First Ctrl-C: leave unless a second follows, which asks for a stop and lets the watch go on to see it."""
    say(f"\ndetaching; Ctrl-C again within {SECOND_PRESS_S:.0f} s asks the campaign to stop")
    try:
        time.sleep(SECOND_PRESS_S)
    except KeyboardInterrupt:
        with ensure_daemon(workspace) as client:
            client.post(f"campaigns/{segment(campaign_id)}/stop")
        say("asked the campaign to stop; watching until its attempts have ended (Ctrl-C detaches)")
        return
    again = f"a3r campaign watch {campaign_id}"
    if as_json:
        raise Detached("Detached; the campaign goes on.", hint=f"Come back with: {again}")
    say(f"detached; the campaign goes on. Come back with: {again}")
    raise typer.Exit(EXIT_DETACHED)


def _conclude(workspace: Workspace, campaign: Json, *, as_json: bool) -> None:
    from a3r.cli.campaign_report import report_file, require_verified, verified

    report = report_file(workspace, campaign["report_path"])
    if campaign["state"] != "done" or report is None:
        why, _, told = str(campaign["failure"] or "somebody asked for it").partition("\nhint: ")
        hint = f"'a3r campaign show {campaign['id']}' tells more."
        if campaign["state"] == "blocked":
            hint = f"Remove the cause, then 'a3r campaign resume {campaign['id']}'."
        raise CampaignEnded(
            f"Campaign {campaign['id']} is {campaign['state']}: {why.rstrip('.')}.",
            hint=told or hint,
            campaign=campaign["id"],
            state=campaign["state"],
            report=None if report is None else str(report),
        )
    if campaign["failure"]:
        say(f"ended without a result: {campaign['failure']}")
    result = verified(workspace, report.parent, campaign["id"])
    require_verified(result, report)
    document = {
        "campaign": campaign["id"],
        "state": campaign["state"],
        "report": str(report),
        "verify": result,
    }
    say(f"verified: {result['level']}, {len(result['checks'])} checks")
    emit(document, [str(report)], as_json=as_json)
