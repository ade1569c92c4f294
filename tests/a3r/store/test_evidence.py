"""Steps, evaluation rounds, events, logs, artifacts: repeats are harmless, contradictions refused."""

from typing import Any

import pytest

from a3r.core.errors import Conflict, NotFound, StoreError
from a3r.core.hashing import bytes_hash
from a3r.core.wire import EventReport
from a3r.store.store import Store


def _event(seq: int, kind: str = "first_step") -> EventReport:
    return EventReport(seq=seq, at=5.0 + seq, actor="worker", kind=kind, data={"n": seq})


def test_steps_are_kept_once_by_their_number(study: Any, store: Store) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    two, one = {"step": 2, "reward_mean": 0.25}, {"step": 1, "reward_mean": None}
    assert store.add_steps(attempt.id, token, [two, one, one]) == 2
    assert store.add_steps(attempt.id, token, [one, two]) == 0
    assert store.steps(attempt.id) == [one, two]
    assert store.attempt(attempt.id).step == 2


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"step": 1, "reward_mean": 0.9}, "with other numbers"),
        ({"step": 2, "loss": float("nan")}, "finite|JSON"),
        ({"step": "2"}, "no integer 'step'"),
    ],
)
def test_a_step_that_contradicts_or_is_no_number_is_refused(
    study: Any, store: Store, record: dict[str, Any], words: str
) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    store.add_steps(attempt.id, token, [{"step": 1, "reward_mean": 0.5}])
    with pytest.raises(Conflict, match=words):
        store.add_steps(attempt.id, token, [{"step": 3}, record])
    assert store.steps(attempt.id) == [{"step": 1, "reward_mean": 0.5}]


def test_a_round_is_kept_once_and_never_replaced(study: Any, store: Store) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    first = study.round(token, "initial")
    for _ in range(2):
        store.add_eval_round(attempt.id, token, first)
    with pytest.raises(Conflict, match="with other content"):
        store.add_eval_round(attempt.id, token, study.round(token, "initial", fingerprint="g"))
    assert store.eval_rounds(attempt.id) == [first]


def test_rounds_come_back_in_order_of_step(study: Any, store: Store) -> None:
    attempt = study.claimed()
    study.prove(attempt)
    assert [r.name for r in store.eval_rounds(attempt.id)] == ["initial", "final"]


def test_after_the_end_repeats_pass_and_new_results_do_not(study: Any, store: Store) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    study.prove(attempt)
    study.finish(attempt)
    study.prove(attempt)
    with pytest.raises(Conflict, match="already ended"):
        store.add_steps(attempt.id, token, [{"step": 99}])
    with pytest.raises(Conflict, match="already ended"):
        store.add_eval_round(attempt.id, token, study.round(token, "step-2", step=2))
    assert store.add_events(attempt.id, token, [_event(0)]) == 1
    assert study.kinds().count("late_result") == 2


def test_events_are_kept_once_by_their_sequence_number(study: Any, store: Store) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    assert store.add_events(attempt.id, token, [_event(1), _event(0)]) == 2
    assert store.add_events(attempt.id, token, [_event(0), _event(1), _event(2)]) == 1
    found = [e for e in store.events(study.campaign_id) if e.kind == "first_step"]
    assert [(e.data["n"], e.at, e.attempt_id) for e in found] == [
        (0, 5.0, attempt.id),
        (1, 6.0, attempt.id),
        (2, 7.0, attempt.id),
    ]


def test_events_are_read_on_from_a_sequence_number(study: Any, store: Store) -> None:
    for n in range(5):
        store.add_event(study.campaign_id, "leader", "thought", f"s{n}", {}, 1.0)
    every = store.events(study.campaign_id)
    assert store.events(study.campaign_id, every[-3].seq) == every[-2:]
    assert store.events(study.campaign_id, every[0].seq, limit=2) == every[1:3]


def test_log_chunks_append_raw_bytes_and_overlap_harmlessly(study: Any, store: Store) -> None:
    attempt = study.claimed()
    token = attempt.fencing_token
    assert store.add_log_chunk(attempt.id, token, "client", 0, b"\xff\x00ab") == 4
    assert store.add_log_chunk(attempt.id, token, "client", 2, b"abcd") == 6
    assert store.add_log_chunk(attempt.id, token, "client", 0, b"\xff\x00") == 6
    with pytest.raises(Conflict, match="leaves a gap") as caught:
        store.add_log_chunk(attempt.id, token, "client", 7, b"x")
    assert caught.value.details["length"] == 6
    assert store.read_log(attempt.id, "client", 0, 100) == b"\xff\x00abcd"
    assert store.read_log(attempt.id, "client", -2, 100) == b"cd"
    assert store.read_log(attempt.id, "client", 100, 10) == b""
    assert store.log_names(attempt.id) == ["client"]
    # The end of a log that was too long to be kept whole.
    assert store.add_log_chunk(attempt.id, token, "client.tail", 0, b"end") == 3
    assert store.read_log(attempt.id, "client.tail", -3, 3) == b"end"
    # Servers and clients have names of the blueprint's choice.
    assert store.add_log_chunk(attempt.id, token, "server-Judge_7B", 0, b"up") == 2
    assert store.log_names(attempt.id) == ["client", "client.tail", "server-Judge_7B"]


def test_a_log_that_is_not_there_is_named_with_those_that_are(study: Any, store: Store) -> None:
    attempt = study.claimed()
    store.add_log_chunk(attempt.id, attempt.fencing_token, "server", 0, b"up")
    with pytest.raises(NotFound, match="logs: server"):
        store.read_log(attempt.id, "client", 0, 1)
    with pytest.raises(Conflict, match="cannot name a log"):
        store.add_log_chunk(attempt.id, attempt.fencing_token, "../client", 0, b"x")


def test_an_artifact_is_found_by_its_hash_and_a_changed_file_is_noticed(store: Store) -> None:
    sha = store.put_artifact(b"code")
    assert sha == store.put_artifact(b"code") == bytes_hash(b"code")
    assert store.artifact(sha) == b"code"
    (store.folder / "artifacts" / f"{sha}.tar").write_bytes(b"evil")
    with pytest.raises(StoreError, match="changed on disk"):
        store.artifact(sha)
    for name in ("0" * 64, "../a3r.db"):
        with pytest.raises(NotFound):
            store.artifact(name)


def test_decisions_and_deviations_keep_their_order_and_evidence(study: Any, store: Store) -> None:
    store.add_decision(study.campaign_id, None, "refine", "16 leans yes", {"16": [0.1, 2]}, 5.0)
    store.add_decision(study.campaign_id, None, "conclude", "adjacent", {}, 6.0)
    store.add_deviation(study.campaign_id, "client restarted", {"n": 1}, 7.0)
    assert [d.what for d in store.decisions(study.campaign_id)] == ["refine", "conclude"]
    assert store.decisions(study.campaign_id)[0].evidence == {"16": [0.1, 2]}
    assert [d.what for d in store.deviations(study.campaign_id)] == ["client restarted"]


def test_a_worker_that_registers_again_is_the_same_worker(store: Store) -> None:
    store.upsert_worker("w1", "host", 10, 2, {"cores": 2}, 1.0)
    store.upsert_worker("w1", "host", 11, 4, {"cores": 4}, 2.0)
    (worker,) = store.workers()
    assert (worker.pid, worker.slots, worker.inventory) == (11, 4, {"cores": 4})
    assert (worker.registered_at, worker.seen_at) == (1.0, 2.0)
