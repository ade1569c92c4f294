"""``campaign reuse`` and ``campaign amend`` against a real daemon."""

from typing import Any

from a3r.core.types import CampaignState, ReviewMode
from a3r.core.workspace import Workspace
from a3r.store.store import Store
from a3r.testing.records import synthetic_goal
from a3r.testing.stored import PLAN, StoredCampaign, blueprint


def test_offers_are_shown_and_accepted_by_name(a3r: Any, workspace: Workspace) -> None:
    with Store.open(workspace.database) as store:
        old = StoredCampaign(store)
        (row,) = old.stage("coarse", [blueprint(4, (1,))])
        (run,) = store.ensure_runs(row.id)
        old.succeed(run.id, 1, 8)
        for name in ("done", "paused"):
            made = store.create_campaign(
                name, "", "/g", synthetic_goal((2, 4), (None,), items=10), ReviewMode.STAGE, "sweep", 1.0
            )  # fmt: skip
            if name == "paused":
                store.add_stage(made.id, "coarse", PLAN, [(blueprint(4, (1,)), "a" * 64)], 2.0)
            # held, so that the daemon's leader leaves it alone
            store.set_campaign_state(made.id, CampaignState.PAUSED)
        store.set_campaign_state(old.id, CampaignState.PAUSED)
    shown = a3r("campaign", "reuse", "paused")
    assert (shown.code, f"s1-b4 seed 1: run {run.id} of {old.id}" in shown.out) == (0, True)
    assert a3r("campaign", "reuse", "done").out == "nothing is offered\n"
    assert a3r("campaign", "reuse", "done", "--accept").code == 3
    accepted = a3r("campaign", "reuse", "paused", "--accept", "--by", "ada", "--json").json
    assert [o["source_run"] for o in accepted["accepted"]] == [run.id]
    decisions = a3r("campaign", "show", "paused", "--json").json["decisions"]
    assert decisions[-1]["why"].startswith("ada accepts 1 results")
    assert a3r("campaign", "reuse", "nobody").code == 2
    words = ("--what", "one seed fewer", "--reason", "a host was lost", "--by", "ada")
    assert a3r("campaign", "amend", "paused", *words).out.startswith("added to the plan of paused-")
    assert a3r("campaign", "amend", "done", *words).code == 3
    with Store.open(workspace.database) as store:
        (made,) = store.amendments(store.campaign("paused").id)
    assert (made.changes, made.reason, made.by) == (
        {"note": "one seed fewer"},
        "a host was lost",
        "ada",
    )
