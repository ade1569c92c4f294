"""``a3r campaign show --trace``: who did what when, as the report tells it. Works without a daemon."""

from __future__ import annotations

from typing import Any

from a3r.cli.edge import emit, table, workspace

Json = dict[str, Any]

WIDEST = 100
"""Characters of an outcome on a screen; --json has all of it."""


def show_trace(campaign: str, *, as_json: bool) -> None:
    """Print the campaign's trace in order of time (UTC)."""
    from a3r.core.errors import GoalError
    from a3r.report.export import records_from_store
    from a3r.report.numbers import utc
    from a3r.report.study import Study
    from a3r.report.trace import trace
    from a3r.store.store import Store

    with Store.open(workspace().database) as store:
        records = records_from_store(store, campaign)
    try:
        gains = Study(records).gains
    except GoalError:
        gains = []  # a goal in prose that nobody has read yet
    lines = trace(records, gains)
    body: Json = {
        "campaign": records.campaign.id,
        "trace": [
            {"at": x.at, "actor": x.actor, "artifact": x.artifact, "outcome": x.outcome}
            for x in lines
        ],
    }
    rows = [(utc(x.at), x.actor, x.artifact, _short(x.outcome)) for x in lines]
    emit(body, table(rows, ("time (UTC)", "actor", "artifact", "outcome")), as_json=as_json)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"
