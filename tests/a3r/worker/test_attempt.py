import os
import signal
import sys
import time

import pytest

from a3r.core.types import FailureClass
from a3r.testing.waiting import retry_until as until
from a3r.worker.processes import count_owned

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(90),
]


def test_an_attempt_runs_from_its_claim_to_a_proven_finish(lab):
    attempt = lab.queue(lab.blueprint())
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure, report.reason) == ("succeeded", None, "")
    assert report.summary["seed"] == 5
    assert report.summary["steps"] == 2
    assert report.summary["generations"] == {
        "server": 1,
        "client": 1,
        "evaluator-initial": 1,
        "evaluator-final": 1,
    }
    assert report.summary["cpu_s"]["server"] > 0
    assert sorted(attempt.steps) == [1, 2]
    initial, final = attempt.rounds["initial"], attempt.rounds["final"]
    assert (initial.policy_version, initial.step, initial.planned) == (0, 0, 4)
    assert final.step == 2
    assert all(item.reward is not None and item.calls for r in (initial, final) for item in r.items)
    assert final.fingerprint == report.summary["final_fingerprint"]
    assert {"prepared", "first_step", "trained", "eval_round", "attempt_ended"} <= set(attempt.kinds())
    assert "deviation" not in attempt.kinds()
    assert b"--- a3r end server.1" in attempt.logs["server"]
    until(lambda: count_owned(lab.nonce) == 0)


def test_no_secret_is_in_argv_or_environment_of_any_process(lab):
    attempt = lab.queue(lab.blueprint(pause_s=0.3))
    lab.worker()
    until(lambda: attempt.steps)
    folder = lab.folder()
    tokens = (folder.server / "tokens.json").read_bytes()
    assert (folder.path / "client.token").stat().st_mode & 0o777 == 0o600
    secrets = [t for t in tokens.decode().split('"') if len(t) > 30]
    assert len(secrets) == 4
    for role in ("server", "client"):
        for which in ("child", "supervisor"):
            pid = lab.pid(role, which=which)
            for name in ("cmdline", "environ"):
                raw = open(f"/proc/{pid}/{name}", "rb").read()  # noqa: PTH123, SIM115
                assert not any(secret.encode() in raw for secret in secrets)
    assert lab.finished(attempt).outcome == "succeeded"


def test_a_crashed_client_alone_is_restarted_and_the_server_keeps_its_step(lab):
    attempt = lab.queue(lab.blueprint(steps=3, crash_at=1))
    lab.worker()
    report = lab.finished(attempt)
    assert report.outcome == "succeeded"
    assert report.summary["generations"]["client"] == 2
    assert report.summary["generations"]["server"] == 1
    assert "client_restarted" in attempt.kinds()
    deviation = next(e for e in attempt.events.values() if e.kind == "deviation")
    assert deviation.data["failure"] == "client_crash"
    assert "the client broke" in deviation.data["why"]
    assert sorted(attempt.steps) == [1, 2, 3]


def test_a_client_that_leaves_too_early_is_restarted(lab):
    attempt = lab.queue(lab.blueprint(crash_at=1, how="leave"))
    lab.worker()
    report = lab.finished(attempt)
    assert report.outcome == "succeeded"
    assert report.summary["generations"]["client"] == 2


def test_a_client_that_always_crashes_fails_within_its_budget(lab):
    limits = {"max_client_restarts": 1}
    attempt = lab.queue(lab.blueprint(crash_at=0, always=True, limits=limits))
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.CLIENT_CRASH)
    assert report.summary["generations"]["client"] == 2
    assert "the client broke" in report.reason
    until(lambda: count_owned(lab.nonce) == 0)


def test_a_client_with_a_missing_module_is_not_tried_again(lab):
    attempt = lab.queue(lab.blueprint(crash_at=0, how="import"))
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.IMPORT)
    assert report.summary["generations"]["client"] == 1


def test_a_client_that_never_goes_on_is_ended_by_the_stall_deadline(lab):
    limits = {"first_step_deadline_s": 4, "stall_deadline_s": 4}
    attempt = lab.queue(lab.blueprint(crash_at=1, how="hang", limits=limits))
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.STALL)
    assert "no step completed after step 1" in report.reason
    until(lambda: count_owned(lab.nonce) == 0)


def test_a_killed_server_resumes_at_its_step_on_the_same_port(lab):
    attempt = lab.queue(lab.blueprint(steps=3, pause_s=0.3))
    lab.worker()
    until(lambda: attempt.steps)
    url = lab.folder().memo().url
    os.kill(lab.pid("server"), signal.SIGKILL)
    report = lab.finished(attempt)
    assert report.outcome == "succeeded", report.reason
    assert report.summary["generations"]["server"] == 2
    assert report.summary["generations"]["client"] == 1
    assert lab.folder().memo().url == url
    assert sorted(attempt.steps) == [1, 2, 3]
    assert "server_restarted" in attempt.kinds()


def test_a_killed_evaluator_runs_its_round_again(lab):
    attempt = lab.queue(lab.blueprint())
    lab.worker()
    os.kill(lab.pid("evaluator-initial"), signal.SIGKILL)
    report = lab.finished(attempt)
    assert report.outcome == "succeeded", lab.story(attempt)
    assert report.summary["generations"]["evaluator-initial"] == 2
    assert len(attempt.rounds["initial"].items) == 4


def test_a_killed_supervisor_is_an_unknown_exit_and_the_client_starts_again(lab):
    attempt = lab.queue(lab.blueprint(steps=3, pause_s=0.3))
    lab.worker()
    until(lambda: attempt.steps)
    child = lab.pid("client")
    os.kill(lab.pid("client", which="supervisor"), signal.SIGKILL)
    report = lab.finished(attempt)
    assert report.outcome == "succeeded"
    exits = [e.data["how"] for e in attempt.events.values() if e.kind == "process_exited"]
    assert exits == ["exit unknown (its supervisor is gone)"]
    assert report.summary["generations"]["client"] == 2
    assert not os.path.exists(f"/proc/{child}")  # noqa: PTH110
    assert report.summary["cpu_s"]["client"] is None


def test_items_that_stay_missing_fail_the_round_and_are_never_zero(lab):
    attempt = lab.queue(lab.blueprint(skip=["held-out-0-0"]))
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.EVALUATOR_CRASH)
    assert "scored 3 of 4 items (skipped)" in report.reason
    row = next(i for i in attempt.rounds["initial"].items if i.item_id == "held-out-0-0")
    assert row.reward is None
    assert attempt.steps == {}


def test_code_that_was_not_reviewed_is_not_run(lab):
    blueprint = lab.blueprint()
    changed = blueprint.clients[0].model_copy(update={"tree_hash": "0" * 64})
    attempt = lab.queue(blueprint.model_copy(update={"clients": (changed,)}))
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.CONFIG)
    assert "is not what was reviewed" in report.reason
    assert lab.folder().processes() == []


def test_a_stop_from_the_hub_ends_everything_and_reports_cancelled(lab):
    attempt = lab.queue(lab.blueprint(steps=50, pause_s=0.3))
    lab.worker()
    until(lambda: attempt.steps)
    attempt.stop_reason = "the campaign was stopped"
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("cancelled", FailureClass.STOPPED)
    assert report.reason == "the campaign was stopped"
    assert count_owned(lab.nonce) == 0


def test_a_fenced_off_attempt_stops_and_keeps_its_folder_as_evidence(lab):
    attempt = lab.queue(lab.blueprint(steps=50, pause_s=0.3))
    worker = lab.worker()
    until(lambda: attempt.steps)
    lab.hub.give_up(attempt.spec.attempt_id)
    until(lambda: not worker.attempts())
    assert attempt.finish is None
    assert count_owned(lab.nonce) == 0
    assert lab.folder().finish().outcome == "cancelled"
    assert lab.folder().steps()


def test_training_goes_on_while_the_hub_is_away_and_everything_arrives_later(lab):
    attempt = lab.queue(lab.blueprint(pause_s=0.1))
    lab.worker()
    until(lambda: "server_ready" in attempt.kinds())
    lab.hub.away = True
    known = len(attempt.steps)
    until(lambda: lab.folder().finish_file.exists(), 40)
    assert len(attempt.steps) == known
    assert attempt.finish is None
    lab.hub.away = False
    report = lab.finished(attempt)
    assert report.outcome == "succeeded"
    assert sorted(attempt.steps) == [1, 2]
    assert sorted(attempt.events) == list(range(len(attempt.events)))
    assert sorted(attempt.rounds) == ["final", "initial"]


def test_two_attempts_run_side_by_side_in_two_slots(lab):
    first = lab.queue(lab.blueprint(), "a-0000001")
    second = lab.queue(lab.blueprint(), "a-0000002")
    second.spec = second.spec.model_copy(update={"nonce": f"{lab.nonce}-2"})
    worker = lab.worker(slots=2)
    until(lambda: len(worker.attempts()) == 2)
    assert lab.finished(first).outcome == "succeeded"
    assert lab.finished(second).outcome == "succeeded"
    assert time.monotonic()
