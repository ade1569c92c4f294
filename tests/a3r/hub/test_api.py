"""What the command line asks of the hub."""

import asyncio
import base64
import threading
from typing import Any

import pytest

from a3r.core.types import CampaignState, ReviewMode
from a3r.hub.changes import Changes

GOAL = {"goal_text": "metric: reward", "goal_dir": "/goals/x"}


async def test_a_campaign_is_filed_as_its_goal_says_unless_told_otherwise(
    study: Any, told: Any
) -> None:
    made = (await study.api("POST", "campaigns", GOAL)).json()
    assert (made["name"], made["state"], made["review_mode"]) == ("tiny", "planning", "stage")
    assert made["goal_spec"]["folder"] == "/goals/x"
    other = (await study.api("POST", "campaigns", {**GOAL, "review": "none"})).json()
    assert other["review_mode"] == "none"
    assert other["id"] != made["id"]
    assert told.calls == ["change", "change"]


async def test_a_goal_with_a_mistake_is_refused_and_files_nothing(study: Any) -> None:
    reply = await study.api("POST", "campaigns", {"goal_text": "nothing", "goal_dir": "/g"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "goal_invalid")
    assert reply.json()["error"]["hint"] == "add a metric"
    assert len((await study.api("GET", "campaigns")).json()["campaigns"]) == 1


async def test_a_misspelt_campaign_suggests_the_nearest(study: Any) -> None:
    reply = await study.api("GET", "campaigns/Studdy")
    assert reply.status_code == 404
    assert "'Study'" in reply.json()["error"]["hint"]
    assert (await study.api("GET", "campaigns/stu")).json()["id"] == study.campaign_id


async def test_events_wait_for_the_next_one(study: Any) -> None:
    page = (await study.api("GET", f"campaigns/{study.campaign_id}/events")).json()
    assert [e["seq"] for e in page["events"]] == sorted(e["seq"] for e in page["events"])
    path = f"campaigns/{study.campaign_id}/events?after_seq={page['last_seq']}"
    empty = (await study.api("GET", f"{path}&wait_s=0")).json()
    assert (empty["events"], empty["last_seq"]) == ([], page["last_seq"])
    waiting = asyncio.create_task(study.api("GET", f"{path}&wait_s=20"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    study.queue()
    (event,) = (await asyncio.wait_for(waiting, 5)).json()["events"]
    assert event["kind"] == "attempt_queued"
    assert event["more"]["label"] == "b16 seed 1"


async def test_events_end_their_wait_when_the_state_is_another(study: Any) -> None:
    path = f"campaigns/{study.campaign_id}/events?after_seq=100000&wait_s=20"
    same = asyncio.create_task(study.api("GET", f"{path}&state=running"))
    moved = (await asyncio.wait_for(study.api("GET", f"{path}&state=planning"), 5)).json()
    assert (moved["campaign"]["state"], moved["events"]) == ("running", [])
    assert not same.done()
    study.hub.close()
    assert (await asyncio.wait_for(same, 5)).json()["events"] == []


async def test_a_finished_run_is_told_with_its_gain(study: Any) -> None:
    spec = await study.claimed()
    await study.proven(spec, gain=0.25)
    body = {"fencing_token": spec.fencing_token, "outcome": "succeeded"}
    await study.worker(f"attempts/{spec.attempt_id}/finish", body)
    page = (await study.api("GET", f"campaigns/{study.campaign_id}/events")).json()
    (event,) = [e for e in page["events"] if e["kind"] == "attempt_succeeded"]
    assert event["more"]["gain"] == pytest.approx(0.25)
    runs = (await study.api("GET", f"campaigns/{study.campaign_id}/runs")).json()["runs"]
    assert [(r["label"], r["state"], r["gain"]) for r in runs] == [
        ("b16 seed 1", "succeeded", pytest.approx(0.25)),
        ("b16 seed 2", "pending", None),
    ]
    path = f"campaigns/{study.campaign_id}/runs?state=pending"
    assert [r["label"] for r in (await study.api("GET", path)).json()["runs"]] == ["b16 seed 2"]


async def test_stop_is_idempotent_and_what_is_over_cannot_resume(study: Any, told: Any) -> None:
    path = f"campaigns/{study.campaign_id}"
    first = (await study.api("POST", f"{path}/stop")).json()
    again = (await study.api("POST", f"{path}/stop")).json()
    assert first["stop_requested_at"] == again["stop_requested_at"] == 1000.0
    study.store.set_campaign_state(study.campaign_id, CampaignState.STOPPED)
    refused = await study.api("POST", f"{path}/resume")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert "campaign start" in refused.json()["error"]["hint"]


async def test_resume_lets_a_blocked_campaign_go_on(study: Any, told: Any) -> None:
    study.store.set_campaign_state(study.campaign_id, CampaignState.BLOCKED, failure="disk full")
    for _ in range(2):
        body = (await study.api("POST", f"campaigns/{study.campaign_id}/resume")).json()
        assert (body["state"], body["failure"]) == ("running", None)
    assert told.calls == ["change"]


async def test_a_stage_is_approved_at_once_and_a_verdict_binds_to_what_was_read(
    study: Any,
) -> None:
    from a3r.blueprints.model import Blueprint

    (old,) = study.store.blueprints(study.campaign_id)
    changed = old.blueprint.model_dump() | {"name": "b8", "factors": {"train_batch_size": 8}}
    study.store.add_stage(
        study.campaign_id, "refine", {}, [(Blueprint.model_validate(changed), "a" * 64)], 1000
    )
    show = (await study.api("GET", f"campaigns/{study.campaign_id}")).json()
    assert (show["to_review"], show["awaiting_review"]) == (["b8"], 1)
    verdict = {"verdict": "approved", "by": "ada"}
    stale = {**verdict, "content_hash": "0" * 64}
    path = f"blueprints/{study.campaign_id}/b8"
    assert (await study.api("POST", f"{path}/review", stale)).status_code == 409
    done = (await study.api("POST", f"campaigns/{study.campaign_id}/review", verdict)).json()
    assert [r["name"] for r in done["reviewed"]] == ["b8"]
    one = (await study.api("GET", path)).json()
    assert (one["review"], one["reviews"][0]["by"]) == ("approved", "ada")
    nothing = await study.api("POST", f"campaigns/{study.campaign_id}/review", verdict)
    assert nothing.status_code == 409


async def test_a_campaign_without_review_awaits_none(study: Any) -> None:
    row = study.store.create_campaign("free", "", "/g", {}, ReviewMode.NONE, "sweep", 1000)
    (old,) = study.store.blueprints(study.campaign_id)
    study.store.add_stage(row.id, "coarse", {}, [(old.blueprint, "a" * 64)], 1000)
    assert (await study.api("GET", f"campaigns/{row.id}")).json()["awaiting_review"] == 0


async def test_a_run_is_found_by_id_part_or_label(study: Any) -> None:
    run = study.runs()[0]
    for reference in (run.id, run.id[:-1], "b16 seed 1"):
        body = (await study.api("GET", f"runs/{reference}")).json()
        assert body["id"] == run.id
    assert (await study.api("GET", "runs/run-")).status_code == 409
    lost = await study.api("GET", "runs/b16 seed 3")
    assert "'b16 seed" in lost.json()["error"]["hint"]


async def test_a_run_is_explained_without_its_secrets(study: Any) -> None:
    spec = await study.claimed()
    await study.proven(spec)
    body = (await study.api("GET", f"runs/{spec.run_id}")).json()
    (attempt,) = body["attempts"]
    assert spec.nonce not in str(body)
    assert "fencing_token" not in attempt
    assert [(r["name"], r["scored"], r["mean"]) for r in attempt["rounds"]] == [
        ("initial", 2, 0.5),
        ("final", 2, 0.75),
    ]
    assert (attempt["steps"], attempt["live"]) == (2, True)


async def test_a_log_is_read_in_ranges_and_from_its_end(study: Any) -> None:
    spec = await study.claimed()
    study.store.add_log_chunk(spec.attempt_id, spec.fencing_token, "client", 0, b"0123456789")
    path = f"runs/{spec.run_id}/logs?name=client"
    part = (await study.api("GET", f"{path}&offset=2&limit=3")).json()
    assert (base64.b64decode(part["data_b64"]), part["next_offset"]) == (b"234", 5)
    tail = (await study.api("GET", f"{path}&offset=-4")).json()
    assert (base64.b64decode(tail["data_b64"]), tail["ended"]) == (b"6789", False)
    soon = (await study.api("GET", f"runs/{spec.run_id}/logs?name=server")).json()
    assert (soon["size"], soon["ended"]) == (0, False)
    none = await study.api("GET", f"{path}&attempt=2")
    assert none.status_code == 404


async def test_a_change_between_look_and_wait_is_not_missed() -> None:
    changes = Changes()
    seen = changes.count
    threading.Thread(target=changes.notify).start()
    await asyncio.wait_for(changes.wait(seen, 10), 5)
    assert changes.count == 1
    await asyncio.wait_for(changes.wait(seen, 10), 5)
    changes.close()
    await asyncio.wait_for(changes.wait(changes.count, 10), 5)
