"""What a worker and the hub say to each other."""

import asyncio
import base64
from typing import Any

from a3r.core.types import AttemptState, ReviewStatus
from a3r.hub import leases


async def _no_caller_left() -> bool:
    return False


async def _caller_left() -> bool:
    return True


def _beat(spec: Any, state: str = "running", **changes: Any) -> dict[str, Any]:
    report = {
        "attempt_id": spec.attempt_id,
        "fencing_token": spec.fencing_token,
        "state": state,
        "step": 1,
        "detail": "training",
        **changes,
    }
    return {"worker_id": "w1", "attempts": [report], "wait_s": 0}


async def test_a_worker_is_welcomed_with_times_and_epoch(study: Any) -> None:
    hello = {"worker_id": "w1", "host": "h", "pid": 7, "slots": 2, "inventory": {"gpus": 0}}
    for _ in range(2):
        welcome = (await study.worker("register", hello)).json()
    assert (welcome["lease_s"], welcome["hub_epoch"]) == (10, "e1")
    body = (await study.api("GET", "daemon")).json()
    assert [(w["id"], w["slots"]) for w in body["workers"]] == [("w1", 2)]
    assert body["leader"] == {"ticks": 7}


async def test_a_claim_leases_an_attempt_with_everything_to_run_it(study: Any) -> None:
    spec = await study.claimed()
    assert spec.label == "b16 seed 1"
    assert (spec.seed, spec.ordinal, spec.lease_s) == (1, 1, 10)
    assert spec.blueprint["name"] == "b16"
    headers = {"Authorization": "Bearer worker-token"}
    packed = await study.http.get(f"/worker/v1/artifacts/{spec.client_artifact}", headers=headers)
    assert packed.content == b"client folder"
    assert study.store.attempt(spec.attempt_id).state is AttemptState.LEASED


async def test_a_waiting_claim_wakes_when_an_attempt_is_queued(study: Any) -> None:
    body = {"worker_id": "w1", "free_slots": 1, "wait_s": 20}
    waiting = asyncio.create_task(study.worker("claim", body))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    study.queue()
    reply = await asyncio.wait_for(waiting, 5)
    assert reply.json()["attempt"]["label"] == "b16 seed 1"


async def test_a_claim_without_free_slots_or_work_is_answered_empty(study: Any) -> None:
    nothing = await study.worker("claim", {"worker_id": "w1", "free_slots": 1, "wait_s": 0})
    assert nothing.json() == {"attempt": None}
    study.queue()
    full = await study.worker("claim", {"worker_id": "w1", "free_slots": 0, "wait_s": 20})
    assert full.json() == {"attempt": None}


async def test_nothing_is_leased_to_a_caller_who_has_left(study: Any) -> None:
    study.queue()

    def look() -> Any:
        return study.store.claim_attempt("w1", study.clock.now, 10)

    assert await study.hub.poll(look, 5, _caller_left) is None
    assert study.store.attempts(study.campaign_id)[0].state is AttemptState.QUEUED
    assert await study.hub.poll(look, 5, _no_caller_left) is not None


async def test_an_attempt_whose_claim_was_never_answered_is_given_again(study: Any) -> None:
    lost = await study.claimed()
    study.queue(1)
    asked = {"worker_id": "w1", "free_slots": 1, "wait_s": 0}
    study.clock.now += 4
    again = (await study.worker("claim", {**asked, "held": []})).json()["attempt"]
    assert (again["attempt_id"], again["fencing_token"]) == (lost.attempt_id, lost.fencing_token)
    row = study.store.attempt(lost.attempt_id)
    assert (row.state, row.lease_expires_at) == (AttemptState.LEASED, study.clock.now + 10)
    kinds = [e.kind for e in study.store.events(study.campaign_id)]
    assert kinds.count("attempt_leased_again") == 1


async def test_an_attempt_is_given_again_to_nobody_else_and_never_once_it_was_spoken_of(
    study: Any,
) -> None:
    lost = await study.claimed()
    study.queue(1)
    other = await study.worker(
        "claim", {"worker_id": "w2", "free_slots": 1, "wait_s": 0, "held": []}
    )
    assert other.json()["attempt"]["attempt_id"] != lost.attempt_id
    asked = {"worker_id": "w1", "free_slots": 1, "wait_s": 0}
    for held in (None, [lost.attempt_id]):  # an older worker; one that has it
        assert (await study.worker("claim", {**asked, "held": held})).json() == {"attempt": None}
    study.clock.now += 1
    report = {
        "attempt_id": lost.attempt_id,
        "fencing_token": lost.fencing_token,
        "state": "preparing",
    }
    await study.worker("heartbeat", {"worker_id": "w1", "attempts": [report]})
    assert (await study.worker("claim", {**asked, "held": []})).json() == {"attempt": None}


async def test_a_heartbeat_without_news_writes_only_when_the_lease_is_no_longer_young(
    study: Any,
) -> None:
    spec = await study.claimed()
    report = {
        "attempt_id": spec.attempt_id,
        "fencing_token": spec.fencing_token,
        "state": "running",
        "step": 1,
        "detail": "trains",
    }

    async def beat(**news: Any) -> float:
        """Expiry of the lease after a heartbeat."""
        body = {"worker_id": "w1", "attempts": [{**report, **news}]}
        assert (await study.worker("heartbeat", body)).json()["commands"] == []
        return study.store.attempt(spec.attempt_id).lease_expires_at

    start = study.clock.now
    assert await beat() == start + 10
    before = study.store.changed.count
    study.clock.now = start + 2
    assert await beat() == start + 10
    assert study.store.changed.count == before
    assert await beat(step=2) == start + 12
    study.clock.now = start + 5
    assert await beat(step=2) == start + 15
    stale = {**report, "fencing_token": spec.fencing_token - 1, "step": 2}
    reply = await study.worker("heartbeat", {"worker_id": "w1", "attempts": [stale]})
    assert [c["kind"] for c in reply.json()["commands"]] == ["stop_attempt"]


async def test_one_that_fell_silent_before_it_was_heard_of_is_given_again_too(study: Any) -> None:
    lost = await study.claimed()
    study.clock.now += 11
    study.store.expire_leases(study.clock.now, 0.0)
    assert study.store.attempt(lost.attempt_id).state is AttemptState.UNREACHABLE
    asked = {"worker_id": "w1", "free_slots": 1, "wait_s": 0, "held": []}
    again = (await study.worker("claim", asked)).json()["attempt"]
    assert again["attempt_id"] == lost.attempt_id
    assert study.store.attempt(lost.attempt_id).state is AttemptState.LEASED


async def test_looking_for_work_in_vain_writes_nothing(study: Any) -> None:
    before = study.store.changed.count
    await study.worker("claim", {"worker_id": "w1", "free_slots": 1, "wait_s": 0.3})
    assert study.store.changed.count == before


async def test_a_heartbeat_renews_the_lease(study: Any) -> None:
    spec = await study.claimed()
    study.clock.now += 8
    reply = (await study.worker("heartbeat", _beat(spec))).json()
    assert reply == {"commands": [], "hub_epoch": "e1", "wanted": "active"}
    row = study.store.attempt(spec.attempt_id)
    assert (row.state, row.step, row.lease_expires_at) == (AttemptState.RUNNING, 1, 1018)


async def test_a_stop_is_commanded_again_until_the_attempt_is_over(study: Any) -> None:
    spec = await study.claimed()
    waiting = asyncio.create_task(study.worker("heartbeat", {**_beat(spec), "wait_s": 20}))
    await asyncio.sleep(0.1)
    study.store.request_attempt_stop(spec.attempt_id, "campaign stopped", study.clock.now)
    first = (await asyncio.wait_for(waiting, 5)).json()["commands"]
    again = (await study.worker("heartbeat", _beat(spec))).json()["commands"]
    assert first == again
    assert [(c["kind"], c["reason"]) for c in first] == [("stop_attempt", "campaign stopped")]
    path = f"attempts/{spec.attempt_id}/finish"
    body = {"fencing_token": spec.fencing_token, "outcome": "cancelled", "failure": "stopped"}
    assert (await study.worker(path, body)).status_code == 200
    over = (await study.worker("heartbeat", _beat(spec, "cancelled"))).json()["commands"]
    assert [c["kind"] for c in over] == ["forget_attempt"]


async def test_a_waiting_heartbeat_is_answered_as_soon_as_there_is_an_order(study: Any) -> None:
    spec = await study.claimed()
    waiting = asyncio.create_task(study.worker("heartbeat", {**_beat(spec), "wait_s": 20}))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    study.store.request_attempt_stop(spec.attempt_id, "enough", study.clock.now)
    reply = (await asyncio.wait_for(waiting, 5)).json()
    assert [(c["kind"], c["reason"]) for c in reply["commands"]] == [("stop_attempt", "enough")]


async def test_unknown_and_stale_attempts_are_to_be_stopped(study: Any) -> None:
    spec = await study.claimed()
    for changes in ({"fencing_token": 99}, {"attempt_id": "at-unknown"}):
        reply = (await study.worker("heartbeat", _beat(spec, **changes))).json()
        assert [c["kind"] for c in reply["commands"]] == ["stop_attempt"]
    assert study.store.attempt(spec.attempt_id).state is AttemptState.LEASED


async def test_silence_makes_an_attempt_unreachable_then_lost_and_a_late_worker_stops(
    study: Any,
) -> None:
    spec = await study.claimed()
    store, settings = study.store, study.hub.settings
    assert leases.expire(store, settings, 1009) == 0
    assert leases.expire(store, settings, 1011) == 1
    assert store.attempt(spec.attempt_id).state is AttemptState.UNREACHABLE
    assert leases.expire(store, settings, 1070) == 0
    assert leases.expire(store, settings, 1072) == 1
    assert store.attempt(spec.attempt_id).state is AttemptState.LOST
    reply = (await study.worker("heartbeat", _beat(spec))).json()
    assert [c["kind"] for c in reply["commands"]] == ["stop_attempt"]
    late = await study.worker(
        f"attempts/{spec.attempt_id}/finish",
        {"fencing_token": spec.fencing_token, "outcome": "failed", "reason": "x"},
    )
    assert late.status_code == 409


async def test_the_hubs_own_absence_is_not_held_against_a_worker(study: Any) -> None:
    spec = await study.claimed()
    restarted = study.hub.settings.model_copy(update={"started_at": 5000.0})
    assert leases.expire(study.store, restarted, 5009) == 0
    assert leases.expire(study.store, restarted, 5011) == 1
    # Unreachable since before the restart: the time to lost begins anew as well.
    again = restarted.model_copy(update={"started_at": 9000.0})
    assert leases.expire(study.store, again, 9059) == 0
    assert study.store.attempt(spec.attempt_id).state is AttemptState.UNREACHABLE


async def test_a_complete_attempt_is_accepted_and_its_finish_may_be_repeated(study: Any) -> None:
    spec = await study.claimed()
    path = f"attempts/{spec.attempt_id}/finish"
    body = {"fencing_token": spec.fencing_token, "outcome": "succeeded", "summary": {"seed": 1}}
    early = await study.worker(path, body)
    assert early.status_code == 409
    assert early.json()["error"]["details"]["missing"]
    await study.proven(spec)
    for _ in range(2):
        assert (await study.worker(path, body)).status_code == 200
    run = study.runs()[0]
    assert (run.state.value, run.accepted_attempt) == ("succeeded", spec.attempt_id)


async def test_a_deviation_is_filed_once_though_it_is_told_twice(study: Any) -> None:
    spec = await study.claimed()
    event = {
        "seq": 3,
        "at": 1001.0,
        "actor": "worker",
        "kind": "deviation",
        "data": {"what": "client restarted", "why": "it crashed"},
    }
    body = {"fencing_token": spec.fencing_token, "events": [event]}
    for _ in range(2):
        reply = await study.worker(f"attempts/{spec.attempt_id}/events", body)
        assert reply.status_code == 200
    (row,) = study.store.deviations(study.campaign_id)
    assert (row.what, row.attempt_id) == ("client restarted", spec.attempt_id)
    assert row.blueprint_id == study.runs()[0].blueprint_id


async def test_log_bytes_arrive_raw_and_a_gap_says_where_to_go_on(study: Any) -> None:
    spec = await study.claimed()

    async def send(offset: int, data: str) -> Any:
        body = {"fencing_token": spec.fencing_token, "name": "client", "offset": offset}
        return await study.worker(f"attempts/{spec.attempt_id}/logs", {**body, "data_b64": data})

    raw = b"caf\xff\xfe\x1b[31m\n"
    assert (await send(0, base64.b64encode(raw).decode())).json() == {"length": len(raw)}
    gap = await send(100, base64.b64encode(b"x").decode())
    assert (gap.status_code, gap.json()["error"]["details"]["length"]) == (409, len(raw))
    assert (await send(0, "no base64!")).status_code == 400
    assert study.store.read_log(spec.attempt_id, "client", 0, 100) == raw


async def test_an_attempt_that_ended_while_the_hub_was_away_keeps_its_lease_to_deliver(
    study: Any,
) -> None:
    spec = await study.claimed()
    store, settings = study.store, study.hub.settings
    study.clock.now = 1011
    assert leases.expire(store, settings, 1011) == 1
    reply = (await study.worker("heartbeat", _beat(spec, "succeeded"))).json()
    assert reply["commands"] == []
    row = store.attempt(spec.attempt_id)
    assert (row.state, row.lease_expires_at) == (AttemptState.EVALUATING, 1021)


async def test_a_worker_that_comes_back_in_the_last_moment_does_not_break_the_lease_clock(
    study: Any,
) -> None:
    spec = await study.claimed()
    settings = study.hub.settings
    assert leases.expire(study.store, settings, 1011) == 1

    class Late:
        """The heartbeat arrives between the look and the verdict."""

        def __getattr__(self, name: str) -> Any:
            return getattr(study.store, name)

        def mark_lost(self, *given: Any) -> Any:
            state = AttemptState.RUNNING
            study.store.renew(spec.attempt_id, spec.fencing_token, state, 1, "", 1080, 10)
            return study.store.mark_lost(*given)

    late: Any = Late()
    assert leases.expire(late, settings, 1080) == 0
    assert study.store.attempt(spec.attempt_id).state is AttemptState.RUNNING


async def test_a_blocked_attempt_is_seen_on_its_campaign(study: Any) -> None:
    spec = await study.claimed()
    detail = "out_of_credit: Top up the external service."
    await study.worker("heartbeat", _beat(spec, "blocked", detail=detail))
    shown = (await study.api("GET", f"campaigns/{study.campaign_id}")).json()
    assert shown["blocked_attempts"] == [{"label": spec.label, "run": spec.run_id, "why": detail}]
    await study.worker("heartbeat", _beat(spec))
    shown = (await study.api("GET", f"campaigns/{study.campaign_id}")).json()
    assert shown["blocked_attempts"] == []


async def test_client_sealed_evaluator_and_further_client_each_come_as_their_own_artifact(
    study: Any,
) -> None:
    store = study.store
    first, coach, judge = (store.put_artifact(name) for name in (b"first", b"coach", b"judge"))
    plain = store.blueprints(study.campaign_id)[0].blueprint
    client, evaluator = plain.clients[0], plain.evaluator
    other = client.model_copy(update={"name": "coach", "tree_hash": "c" * 64})
    sealed = {
        "name": "both",
        "seeds": (1,),
        "clients": (client.model_copy(update={"tree_hash": "f" * 64}), other),
        "evaluator": evaluator.model_copy(update={"artifact": judge}),
    }
    both = plain.model_copy(update=sealed)
    lone = plain.model_copy(update={"name": "lone", "seeds": (1,), "clients": (other,)})
    made = store.add_stage(study.campaign_id, "fine", {}, [(both, first), (lone, coach)], 1000.0)
    for row in store.blueprints(study.campaign_id, made.id):
        store.review(row.id, row.content_hash, ReviewStatus.APPROVED, "ada", "", 1000.0)
        store.ensure_runs(row.id)
    run = next(r for r in study.runs() if store.blueprint(r.blueprint_id).name == "both")
    store.queue_attempt(run.id, 1000.0)
    reply = await study.worker("claim", {"worker_id": "w1", "free_slots": 1, "wait_s": 0})
    spec = reply.json()["attempt"]
    assert spec["client_artifact"] == first
    assert spec["artifacts"] == {"evaluator": judge, "client:coach": coach}
    headers = {"Authorization": "Bearer worker-token"}
    found = [
        (await study.http.get(f"/worker/v1/artifacts/{sha}", headers=headers)).content
        for sha in (first, coach, judge)
    ]
    assert found == [b"first", b"coach", b"judge"]
