"""Queue, claim, lease, fence, lose."""

import threading
from typing import Any

import pytest

from a3r.core.errors import Conflict, NotFound
from a3r.core.types import AttemptState, CampaignState, ReviewMode, RunState
from a3r.store.store import Store


def test_claim_takes_the_oldest_queued_attempt(study: Any, store: Store) -> None:
    runs = study.runs(seeds=(1, 2, 3))
    queued = [store.queue_attempt(run.id, 50.0 - n).id for n, run in enumerate(runs)]
    claimed = [store.claim_attempt("w", 60.0, 5.0) for _ in runs]
    assert [a and a.id for a in claimed] == queued
    assert [a and a.fencing_token for a in claimed] == [1, 2, 3]
    assert store.run(runs[0].id).state is RunState.ACTIVE


def test_workers_that_claim_at_once_get_different_attempts(study: Any, store: Store) -> None:
    for run in study.runs(seeds=(1, 2, 3)):
        store.queue_attempt(run.id, 1.0)
    barrier = threading.Barrier(6)
    got: list[Any] = []

    def claim(worker: str) -> None:
        barrier.wait()
        got.append(store.claim_attempt(worker, 2.0, 5.0))

    threads = [threading.Thread(target=claim, args=(f"w{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claimed = [attempt for attempt in got if attempt is not None]
    assert len(claimed) == 3
    assert len({a.id for a in claimed}) == len({a.fencing_token for a in claimed}) == 3


def test_a_campaign_never_holds_more_attempts_than_its_capacity(study: Any, store: Store) -> None:
    for run in study.runs(seeds=(1, 2, 3, 4)):
        store.queue_attempt(run.id, 1.0)
    held = [store.claim_attempt("w", 2.0, 5.0) for _ in range(4)]
    assert held[3] is None
    first = held[0]
    assert first is not None
    study.finish(first, "failed")
    assert store.claim_attempt("w", 3.0, 5.0) is not None


@pytest.mark.parametrize("state", [CampaignState.PAUSED, CampaignState.BLOCKED])
def test_nothing_is_claimed_of_a_campaign_that_does_not_run(
    study: Any, store: Store, state: CampaignState
) -> None:
    store.queue_attempt(study.run().id, 1.0)
    store.set_campaign_state(study.campaign_id, state)
    assert store.claim_attempt("w", 2.0, 5.0) is None
    store.set_campaign_state(study.campaign_id, CampaignState.RUNNING)
    assert store.claim_attempt("w", 2.0, 5.0) is not None


def test_nothing_is_claimed_after_a_stop_was_requested(study: Any, store: Store) -> None:
    store.queue_attempt(study.run().id, 1.0)
    first = store.request_stop(study.campaign_id)
    study.clock.now += 5
    assert store.request_stop(study.campaign_id).stop_requested_at == first.stop_requested_at
    assert store.claim_attempt("w", 2.0, 5.0) is None


def test_a_run_has_one_attempt_under_way_and_a_budget_of_attempts(study: Any, store: Store) -> None:
    run = study.run()
    first = study.claimed(run)
    with pytest.raises(Conflict, match="under way"):
        store.queue_attempt(run.id, 2.0)
    study.finish(first, "failed")
    second = study.claimed(run)
    assert (second.ordinal, second.run_id) == (2, run.id)
    assert second.nonce != first.nonce
    study.finish(second, "failed")
    with pytest.raises(Conflict, match="used its 2 attempts"):
        store.queue_attempt(run.id, 3.0)
    assert store.pending_work(study.campaign_id).runs_without_live_attempt[0].id == run.id


def test_a_heartbeat_extends_the_lease_and_says_how_far_it_is(study: Any, store: Store) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    renewed = store.renew(attempt.id, token, AttemptState.RUNNING, 7, "training", 1005.0, 10.0)
    assert (renewed.state, renewed.step, renewed.detail) == (AttemptState.RUNNING, 7, "training")
    assert renewed.lease_expires_at == 1015.0
    quiet = store.renew(attempt.id, token, AttemptState.RUNNING, None, "", 1006.0, 10.0)
    assert quiet.step == 7
    assert store.pending_work(study.campaign_id).last_heartbeat_at == 1006.0
    with pytest.raises(Conflict, match="cannot be reported"):
        store.renew(attempt.id, token, AttemptState.SUCCEEDED, 7, "", 1007.0, 10.0)


def test_a_lease_runs_out_only_while_the_hub_is_up(study: Any, store: Store) -> None:
    attempt = study.claimed()  # until 1010
    assert store.expire_leases(1009.0, hub_up_since=0.0) == []
    assert store.expire_leases(5000.0, hub_up_since=4995.0) == []
    expired = store.expire_leases(5006.0, hub_up_since=4995.0)
    assert [(a.id, a.state) for a in expired] == [(attempt.id, AttemptState.UNREACHABLE)]
    assert store.expire_leases(5007.0, hub_up_since=4995.0) == []


def test_an_unreachable_attempt_that_is_heard_again_goes_on(study: Any, store: Store) -> None:
    attempt = study.claimed()
    store.expire_leases(1011.0, 0.0)
    with pytest.raises(Conflict, match="under way"):
        store.queue_attempt(attempt.run_id, 1012.0)
    token = attempt.fencing_token
    back = store.renew(attempt.id, token, AttemptState.RUNNING, 1, "", 1013.0, 10.0)
    assert (back.state, back.unreachable_at) == (AttemptState.RUNNING, None)


def test_only_an_unreachable_attempt_can_be_lost_and_that_is_final(
    study: Any, store: Store
) -> None:
    attempt = study.claimed()
    with pytest.raises(Conflict, match="not unreachable"):
        store.mark_lost(attempt.id, "impatience", 1.0)
    assert study.lose(attempt).state is AttemptState.LOST
    assert study.lose(attempt).state is AttemptState.LOST
    assert study.kinds().count("attempt_lost") == 1
    assert store.queue_attempt(attempt.run_id, 2000.0).ordinal == 2


LATE_WRITES = {
    "heartbeat": lambda s, a, t, _: s.renew(a, t, AttemptState.RUNNING, 1, "", 1.0, 1.0),
    "steps": lambda s, a, t, _: s.add_steps(a, t, [{"step": 1, "reward_mean": 0.5}]),
    "evaluation round 'final'": lambda s, a, t, study: s.add_eval_round(
        a, t, study.round(t, "final")
    ),
    "events": lambda s, a, t, _: s.add_events(a, t, []),
    "log 'client'": lambda s, a, t, _: s.add_log_chunk(a, t, "client", 0, b"x"),
    "finish": lambda s, a, t, _: s.finish_attempt(a, t, "failed", None, "late", {}, 1.0),
}


@pytest.mark.parametrize("what", LATE_WRITES)
@pytest.mark.parametrize("cause", ["a token that is not current", "the attempt was lost"])
def test_a_late_write_is_refused_and_kept_once_as_an_event(
    study: Any, store: Store, what: str, cause: str
) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token + 1
    if cause == "the attempt was lost":
        study.lose(attempt)
        token = attempt.fencing_token
    before = store.attempt(attempt.id)
    for _ in range(2):
        with pytest.raises(Conflict, match="not accepted") as caught:
            LATE_WRITES[what](store, attempt.id, token, study)
        assert caught.value.details["attempt_id"] == attempt.id
    assert store.attempt(attempt.id) == before
    assert store.steps(attempt.id) == store.eval_rounds(attempt.id) == []
    late = [e for e in store.events(study.campaign_id) if e.kind == "late_result"]
    assert [(e.attempt_id, e.data["what"], e.data["fencing_token"]) for e in late] == [
        (attempt.id, what, token)
    ]


def test_token_zero_of_a_queued_attempt_opens_nothing(study: Any, store: Store) -> None:
    queued = store.queue_attempt(study.run().id, 1.0)
    with pytest.raises(Conflict, match="not accepted"):
        store.renew(queued.id, 0, AttemptState.RUNNING, 1, "", 1.0, 1.0)
    assert store.attempt(queued.id).state is AttemptState.QUEUED


def test_a_stop_cancels_what_waits_and_asks_what_runs(study: Any, store: Store) -> None:
    one, two = study.runs(seeds=(1, 2))
    running = study.claimed(one)
    waiting = store.queue_attempt(two.id, 2.0)
    assert store.request_attempt_stop(waiting.id, "stop", 3.0).state is AttemptState.CANCELLED
    asked = store.request_attempt_stop(running.id, "stop", 3.0)
    assert (asked.state, asked.stop_reason) == (AttemptState.LEASED, "stop")
    assert store.request_attempt_stop(running.id, "again", 4.0).stop_reason == "stop"
    assert [a.id for a in store.attempts_of_worker("w1")] == [running.id]
    study.finish(running, "cancelled")
    assert store.attempts_of_worker("w1") == []


def test_a_campaign_without_review_runs_unapproved_blueprints(store: Store, study: Any) -> None:
    campaign = store.create_campaign("free", "", "", {}, ReviewMode.NONE, "sweep", 1.0)
    store.set_campaign_state(campaign.id, CampaignState.RUNNING)
    study.campaign_id = campaign.id
    row = study.add(study.blueprint(), approve=False)
    store.queue_attempt(store.ensure_runs(row.id)[0].id, 1.0)
    assert store.claim_attempt("w", 2.0, 5.0) is not None
    assert store.approved(row.id) is False


def test_an_unknown_attempt_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="'at-x'"):
        store.attempt("at-x")


def test_a_heartbeat_is_a_write_but_no_event_and_shows_who_is_held(
    study: Any, store: Store
) -> None:
    first, second = study.runs(seeds=(1, 2))
    for run in (first, second):
        store.queue_attempt(run.id, 1.0)
    held = store.claim_attempt("w", 2.0, 5.0)
    assert held is not None
    running = AttemptState.RUNNING
    store.renew(held.id, held.fencing_token, running, 1, "", 3.0, 5.0)
    seq, writes = store.last_event_seq(), store.changed.count
    assert seq == store.events(study.campaign_id)[-1].seq
    store.renew(held.id, held.fencing_token, running, 2, "", 4.0, 5.0)
    assert (store.last_event_seq(), store.changed.count) == (seq, writes + 1)
    assert [a.id for a in store.held_attempts()] == [held.id]
    study.finish(held, "failed")
    assert store.held_attempts() == []
    assert store.last_event_seq() > seq
