"""``campaign schedule`` with a real daemon, and ``findings`` without one."""

from pathlib import Path
from typing import Any

from a3r.core.types import ReviewMode
from a3r.core.workspace import Workspace
from a3r.store.findings import Found
from a3r.store.store import Store
from a3r.testing.waiting import retry_until


def test_a_schedule_is_added_once_shown_fired_by_the_daemon_and_removed(
    a3r: Any, goal: Path, workspace: Workspace
) -> None:
    made = a3r("campaign", "schedule", str(goal), "--cron", "0 2 * * 1", "--json").json["schedule"]
    assert "02:00 UTC" in made["next"]
    again = a3r("campaign", "schedule", str(goal), "--cron", "0 2 * * 1", "--review", "none")
    assert (again.code, made["id"] in again.out) == (0, True)
    with Store.open(workspace.database) as store:
        store.take_firing(made["id"], made["created_at"] - 7 * 86400 * 3, ["as if it were older"])
    retry_until(lambda: "missed" in a3r("campaign", "schedule", "--list").out, timeout_s=30)
    listed = a3r("campaign", "schedule", "--list", "--json").json["schedules"]
    assert [(s["id"], s["options"]) for s in listed] == [(made["id"], {"review": "none"})]
    assert a3r("campaign", "schedule", "--remove", made["id"]).code == 0
    assert a3r("campaign", "schedule", "--list").out == "no schedule yet\n"
    assert a3r("campaign", "schedule", "--remove", made["id"]).code == 2


def test_a_schedule_needs_a_goal_and_an_expression_without_mistakes(a3r: Any, goal: Path) -> None:
    assert a3r("campaign", "schedule", str(goal)).code == 2
    told = a3r("campaign", "schedule", str(goal), "--cron", "0 2 * *", "--json")
    assert (told.code, told.json["error"]["code"]) == (2, "goal_invalid")
    assert a3r("campaign", "schedule", "nowhere.md", "--cron", "0 2 * * *").code == 2


def test_findings_are_searched_and_listed(a3r: Any, workspace: Workspace) -> None:
    with Store.open(workspace.database) as store:
        row = store.create_campaign("old", "", "", {}, ReviewMode.NONE, "sweep", 1.0)
        text = "The smallest train_batch_size shown to train is 16."
        store.file_findings(row.id, [Found(f"{row.id}/c1", text, "s", "q")], 2.0)
    told = a3r("findings", "search", "train_batch", "other")
    assert (told.code, text in told.out) == (0, True)
    assert a3r("findings", "search", "nothing").out == "nothing found\n"
    assert len(a3r("findings", "list", "old", "--json").json["findings"]) == 1
    assert a3r("findings", "list", "nobody").code == 2
