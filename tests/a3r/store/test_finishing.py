"""How an attempt ends, and what a success must show."""

from typing import Any

import pytest

from a3r.blueprints.model import StopRule
from a3r.core.errors import Conflict
from a3r.core.types import AttemptState, FailureClass, RunState
from a3r.core.wire import EvalItem
from a3r.store.completeness import last_step
from a3r.store.store import Store


def _drop_step(study: Any, attempt: Any) -> None:
    token = attempt.fencing_token
    study.store.add_steps(attempt.id, token, [{"step": 1}, {"step": 3}])
    for name in ("initial", "final"):
        study.store.add_eval_round(attempt.id, token, study.round(token, name))


def _stray_step(study: Any, attempt: Any) -> None:
    _rounds(study, attempt)
    study.store.add_steps(attempt.id, attempt.fencing_token, [{"step": 10**12}])


def _rounds(study: Any, attempt: Any, **final: Any) -> None:
    token = attempt.fencing_token
    study.store.add_steps(attempt.id, token, [{"step": k} for k in (1, 2, 3)])
    study.store.add_eval_round(attempt.id, token, study.round(token, "initial"))
    if final.pop("there", True):
        study.store.add_eval_round(attempt.id, token, study.round(token, "final", **final))


def _items(*rewards: float | None, version: int = 3) -> list[EvalItem]:
    return [
        EvalItem(item_id=f"i{n}", reward=r, policy_version=version, calls=1, truncated_calls=0)
        for n, r in enumerate(rewards)
    ]


INCOMPLETE: dict[str, Any] = {
    "1 of 3 steps have no record": _drop_step,
    "not 1 to 3 .first: 1000000000000": _stray_step,
    "'final' is missing": lambda s, a: _rounds(s, a, there=False),
    "has 1 of 2 items": lambda s, a: _rounds(s, a, items=_items(1.0)),
    "1 items without a score": lambda s, a: _rounds(s, a, items=_items(1.0, None)),
    "another policy version": lambda s, a: _rounds(s, a, items=_items(1.0, 0.0, version=2)),
    "of step 2, expected 3": lambda s, a: _rounds(s, a, step=2),
    "another item set": lambda s, a: _rounds(s, a, item_set_hash="easier"),
    "other code": lambda s, a: _rounds(s, a, evaluator_hash="kinder"),
    "planned 1 items": lambda s, a: _rounds(s, a, planned=1, items=_items(1.0)),
}


def test_a_complete_attempt_is_the_accepted_result_of_its_run(study: Any, store: Store) -> None:
    attempt = study.claimed()
    study.prove(attempt)
    done = store.finish_attempt(
        attempt.id, attempt.fencing_token, "succeeded", None, "", {"seed": 1}, 1020.0
    )
    run = store.run(attempt.run_id)
    assert (done.state, done.ended_at, done.summary) == (
        AttemptState.SUCCEEDED,
        1020.0,
        {"seed": 1},
    )
    assert (run.state, run.accepted_attempt) == (RunState.SUCCEEDED, attempt.id)
    assert study.finish(attempt) == done
    assert study.kinds().count("attempt_succeeded") == 1


@pytest.mark.parametrize("words", INCOMPLETE)
def test_a_success_without_complete_evidence_is_refused(
    study: Any, store: Store, words: str
) -> None:
    attempt = study.claimed()
    INCOMPLETE[words](study, attempt)
    with pytest.raises(Conflict, match=words) as caught:
        study.finish(attempt)
    assert caught.value.details["missing"]
    assert store.attempt(attempt.id).state is AttemptState.LEASED
    assert store.run(attempt.run_id).accepted_attempt is None
    assert study.finish(attempt, "failed").state is AttemptState.FAILED


@pytest.mark.parametrize("stopped", [0, -5, "2", None, 99])
def test_an_early_end_that_is_no_step_frees_from_nothing(study: Any, stopped: Any) -> None:
    rule = StopRule(metric="entropy", when="below", value=0.1)
    ruled = study.blueprint("b16").model_copy(update={"stop_rules": (rule,)})
    assert last_step(ruled, {"stopped_at": stopped}) == 3
    assert last_step(ruled, {"stopped_at": 2}) == 2


def test_a_result_of_another_seed_is_refused(study: Any, store: Store) -> None:
    attempt = study.claimed()
    study.prove(attempt)
    with pytest.raises(Conflict, match="seed 2, the run's is 1"):
        store.finish_attempt(
            attempt.id, attempt.fencing_token, "succeeded", None, "", {"seed": 2}, 1.0
        )


def test_a_failure_leaves_the_run_to_the_reconciler(study: Any, store: Store) -> None:
    attempt = study.claimed()
    failed = store.finish_attempt(
        attempt.id, attempt.fencing_token, "failed", FailureClass.STALL, "no step", {}, 1.0
    )
    assert (failed.failure, failed.reason) == (FailureClass.STALL, "no step")
    assert store.run(attempt.run_id).state is RunState.ACTIVE
    with pytest.raises(Conflict, match="already ended as failed"):
        study.finish(attempt, "cancelled")


def test_a_run_accepts_at_most_one_attempt(study: Any, store: Store) -> None:
    run = study.run()
    first = study.claimed(run)
    study.prove(first)
    study.lose(first)
    second = study.claimed(run)
    study.prove(second)
    study.finish(second)
    with pytest.raises(Conflict, match="given up as lost"):
        study.finish(first)
    assert store.run(run.id).accepted_attempt == second.id
    late = [e.data for e in store.events(study.campaign_id) if e.kind == "late_result"]
    assert late[0]["payload"]["outcome"] == "succeeded"
    with pytest.raises(Conflict, match="final"):
        store.queue_attempt(run.id, 1.0)
    with pytest.raises(Conflict, match="final"):
        store.set_run_state(run.id, RunState.FAILED)


def test_what_is_pending_leaves_out_the_attempts_of_runs_that_are_settled(
    study: Any, store: Store
) -> None:
    done, failing, waiting = study.runs(seeds=(1, 2, 3))
    kept = study.claimed(done)
    study.prove(kept)
    study.finish(kept)
    failed = study.claimed(failing)
    study.finish(failed, "failed")
    live = study.claimed(waiting)
    work = store.pending_work(study.campaign_id)
    found = {s: [a.id for a in attempts] for s, attempts in work.attempts_by_state.items()}
    assert found == {AttemptState.FAILED: [failed.id], AttemptState.LEASED: [live.id]}
    assert [run.id for run in work.runs_without_live_attempt] == [failing.id]
    assert [(run.id, run.seed) for run in store.runs(study.campaign_id)] == [
        (done.id, 1),
        (failing.id, 2),
        (waiting.id, 3),
    ]


def test_a_run_succeeds_only_through_an_accepted_attempt(study: Any, store: Store) -> None:
    with pytest.raises(Conflict, match="succeeds only with an attempt"):
        store.set_run_state(study.run().id, RunState.SUCCEEDED)


def test_ending_a_run_cancels_what_waits_but_not_what_runs(study: Any, store: Store) -> None:
    one, two = study.runs(seeds=(1, 2))
    study.claimed(one)
    waiting = store.queue_attempt(two.id, 1.0)
    with pytest.raises(Conflict, match="under way"):
        store.set_run_state(one.id, RunState.CANCELLED)
    ended = store.set_run_state(two.id, RunState.CANCELLED, FailureClass.STOPPED, "stop asked")
    assert (ended.state, ended.failure, ended.reason) == (
        RunState.CANCELLED,
        FailureClass.STOPPED,
        "stop asked",
    )
    assert store.attempt(waiting.id).state is AttemptState.CANCELLED
    assert store.pending_work(study.campaign_id).runs_without_live_attempt == []


def test_a_summary_with_nan_is_refused(study: Any, store: Store) -> None:
    attempt = study.claimed()
    with pytest.raises(Conflict, match="summary"):
        store.finish_attempt(
            attempt.id, attempt.fencing_token, "failed", None, "", {"loss": float("nan")}, 1.0
        )
