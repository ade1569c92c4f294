"""One look for each heartbeat, and leases that are renewed together."""

from typing import Any

from a3r.core.types import AttemptState, WorkerState
from a3r.store.beats import Renewal
from a3r.store.store import Store


def _said(attempt: Any, *, token: int | None = None, step: int = 3) -> Renewal:
    fencing = attempt.fencing_token if token is None else token
    return Renewal(attempt.id, fencing, AttemptState.RUNNING, step, "training")


def test_one_look_tells_of_the_attempts_the_questions_and_what_is_wanted(
    study: Any, store: Store
) -> None:
    held = study.claimed()
    store.upsert_worker("w1", "h", 1, 1, {}, 1.0)
    store.set_worker_state("w1", WorkerState.DRAINING)
    asked = store.add_command("w1", held.id, "fetch_log", {"name": "client"}, 2.0)
    store.add_command("w2", None, "fetch_log", {}, 2.0)
    known = store.known_of("w1", [held.id, "at-nowhere"])
    assert known.attempts == {held.id: store.attempt(held.id)}
    assert known.commands == [asked]
    assert known.wanted is WorkerState.DRAINING
    store.answer_command(asked.id, "w1", ok=True, result={}, at=3.0)
    assert store.known_of("w1", []).commands == []


def test_nothing_is_known_of_a_worker_that_never_came(store: Store) -> None:
    known = store.known_of("w9", [])
    assert (known.attempts, known.commands, known.wanted) == ({}, [], WorkerState.ACTIVE)


def test_a_lease_that_is_refused_does_not_hinder_the_others(study: Any, store: Store) -> None:
    first, stale, last = (study.claimed(run) for run in study.runs(seeds=(1, 2, 3)))
    said = [_said(first), _said(stale, token=stale.fencing_token - 1), _said(last)]
    lost = Renewal("at-nowhere", 1, AttemptState.RUNNING, 1, "")
    writes = store.changed.count
    refused = store.renew_all([*said[:2], lost, said[2]], 1005.0, 10.0)
    assert set(refused) == {stale.id, "at-nowhere"}
    assert "is not current" in refused[stale.id].message
    expiries = [store.attempt(a.id).lease_expires_at for a in (first, stale, last)]
    assert expiries == [1015.0, stale.lease_expires_at, 1015.0]
    assert study.kinds().count("late_result") == 1
    assert store.changed.count == writes + 1
