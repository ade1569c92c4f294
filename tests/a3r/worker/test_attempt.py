"""Whole attempts: real supervisors, a real swarm server on the toy engine, a real client; only the hub is in memory."""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from a3r.core.types import AttemptState, FailureClass
from a3r.testing.waiting import retry_until as until
from a3r.worker import supervisor
from a3r.worker.processes import ProcessState, count_owned

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(120),
]


def work_of(lab):
    """The client's own folder."""
    return lab.folder().path / "work" / "client"


def secrets_of(folder):
    tokens = (folder.server / "tokens.json").read_text()
    return [t.encode() for t in tokens.split('"') if len(t) > 30]


def test_two_attempts_run_side_by_side_from_claim_to_proven_finish(lab):
    first = lab.queue(lab.blueprint(pause_s=0.2), "a-0000001")
    second = lab.queue(lab.blueprint(), "a-0000002", nonce=f"{lab.nonce}-2")
    worker = lab.worker(slots=2)
    until(lambda: len(worker.attempts()) == 2)
    until(lambda: lab.folder().latest("client"))
    secrets = secrets_of(lab.folder())
    assert len(secrets) == 4
    assert (lab.folder().path / "client.token").stat().st_mode & 0o777 == 0o600
    for role in ("server", "client"):
        for which in ("child", "supervisor"):
            proc = Path(f"/proc/{lab.pid(role, which=which)}")
            said = (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
            assert not any(secret in said for secret in secrets)

    report = lab.finished(first)
    assert (report.outcome, report.failure, report.reason) == ("succeeded", None, "")
    assert (report.summary["seed"], report.summary["steps"]) == (5, 2)
    once = ("server", "client", "evaluator-initial", "evaluator-final")
    assert report.summary["generations"] == dict.fromkeys(once, 1)
    assert all(report.summary["cpu_s"][role] > 0 for role in once)
    assert sorted(first.steps) == [1, 2]
    initial, final = first.rounds["initial"], first.rounds["final"]
    assert (initial.policy_version, initial.step, initial.planned, final.step) == (0, 0, 4, 2)
    assert all(item.reward is not None and item.calls for r in (initial, final) for item in r.items)
    assert final.fingerprint == report.summary["final_fingerprint"] != initial.fingerprint
    told = {"prepared", "first_step", "trained", "eval_round", "attempt_ended", "processes_gone"}
    assert told <= set(first.kinds())
    assert "deviation" not in first.kinds()
    assert b"--- a3r end server.1" in first.logs["server"]
    assert not any(secret in log for log in first.logs.values() for secret in secrets)
    states = [r.state for r in first.reports]
    assert AttemptState.RUNNING in states

    assert lab.finished(second).outcome == "succeeded"
    assert count_owned(lab.nonce) == count_owned(f"{lab.nonce}-2") == 0
    until(lambda: worker.attempts() == [])


def test_a_client_in_trouble_is_restarted_alone_and_the_server_keeps_its_step(lab):
    trouble = {"1": "raise", "2": "leave", "3": "hang"}
    attempt = lab.queue(lab.blueprint(steps=4, trouble=trouble))
    lab.worker()
    # It broke at step 1, left too early at step 2, and now hangs at step 3: its supervisor dies.
    until(lambda: (work_of(lab) / "misbehaved.3").exists(), 30)
    child = lab.pid("client")
    os.kill(lab.pid("client", which="supervisor"), signal.SIGKILL)
    report = lab.finished(attempt)
    assert report.outcome == "succeeded", lab.story(attempt)
    assert report.summary["generations"]["client"] == 4
    assert report.summary["generations"]["server"] == 1
    assert sorted(attempt.steps) == [1, 2, 3, 4]
    exits = [e.data for e in attempt.events.values() if e.kind == "process_exited"]
    assert [e["failure"] for e in exits] == ["client_crash", "client_crash", "unknown"]
    assert "RuntimeError: the client broke" in exits[0]["last_line"]
    assert exits[1]["how"] == "exit code 0"
    assert exits[2]["how"] == "exit unknown (its supervisor is gone)"
    assert supervisor.start_time(child) is None
    assert attempt.kinds().count("client_restarted") == 3
    assert attempt.kinds().count("deviation") == 3
    assert report.summary["cpu_s"]["client"] is None  # one part of it is not known


def test_failures_end_an_attempt_with_their_class_and_nothing_left_running(lab):
    limits = {"max_client_restarts": 1}
    trouble = {"0": "raise"}
    unread = lab.blueprint()
    code = unread.clients[0].model_copy(update={"tree_hash": "0" * 64})
    blueprints = {
        "crash": lab.blueprint(trouble=trouble, always=True, limits=limits),
        "import": lab.blueprint(trouble={"0": "import"}),
        "items": lab.blueprint(skip=["held-out-0-0"]),
        "code": unread.model_copy(update={"clients": (code,)}),
    }
    attempts = {
        name: lab.queue(b, f"a-{name}", nonce=f"{lab.nonce}-{name}")
        for name, b in blueprints.items()
    }
    lab.worker(slots=4)
    reports = {name: lab.finished(attempt) for name, attempt in attempts.items()}
    assert {r.outcome for r in reports.values()} == {"failed"}

    assert reports["crash"].failure is FailureClass.CLIENT_CRASH
    assert reports["crash"].summary["generations"]["client"] == 2
    assert "the client broke" in reports["crash"].reason
    assert "restarted 1 times" in reports["crash"].reason

    assert reports["import"].failure is FailureClass.IMPORT
    assert reports["import"].summary["generations"]["client"] == 1

    assert reports["items"].failure is FailureClass.EVALUATOR_CRASH
    assert "scored 3 of 4 items (skipped)" in reports["items"].reason
    rows = {i.item_id: i for i in attempts["items"].rounds["initial"].items}
    assert rows["held-out-0-0"].reward is None
    assert attempts["items"].steps == {}

    assert reports["code"].failure is FailureClass.CONFIG
    assert "is not what was reviewed" in reports["code"].reason
    assert lab.folder("a-code").processes() == []
    assert all(count_owned(f"{lab.nonce}-{name}") == 0 for name in blueprints)


def test_a_client_that_never_goes_on_is_ended_by_the_stall_deadline(lab):
    limits = {"stall_deadline_s": 3}
    attempt = lab.queue(lab.blueprint(trouble={"1": "hang"}, always=True, limits=limits))
    lab.worker()
    report = lab.finished(attempt)
    assert (report.outcome, report.failure) == ("failed", FailureClass.STALL)
    assert "no step completed after step 1 for 3 s (ROLLING, step 1 of 2" in report.reason
    assert count_owned(lab.nonce) == 0


def test_a_killed_evaluator_repeats_its_round_and_a_killed_server_resumes_on_its_port(lab):
    attempt = lab.queue(lab.blueprint(steps=3, trouble={"1": "hang"}))
    lab.worker()
    os.kill(lab.pid("evaluator-initial"), signal.SIGKILL)
    until(lambda: (work_of(lab) / "misbehaved.1").exists(), 30)
    url = lab.folder().memo().url
    os.kill(lab.pid("server"), signal.SIGKILL)
    until(lambda: len(lab.folder().generations("server")) == 2)
    os.kill(lab.pid("client"), signal.SIGKILL)
    report = lab.finished(attempt)
    assert report.outcome == "succeeded", lab.story(attempt)
    generations = report.summary["generations"]
    assert (generations["server"], generations["evaluator-initial"]) == (2, 2)
    assert lab.folder().memo().url == url
    assert sorted(attempt.steps) == [1, 2, 3]
    assert len(attempt.rounds["initial"].items) == 4
    kinds = attempt.kinds()
    assert {"server_restarted", "evaluator_restarted", "client_restarted"} <= set(kinds)


def test_a_server_whose_port_was_taken_comes_back_elsewhere_and_the_client_is_told(lab):
    attempt = lab.queue(lab.blueprint(trouble={"1": "hang"}))
    lab.worker()
    until(lambda: (work_of(lab) / "misbehaved.1").exists(), 30)
    before = lab.folder().memo()
    os.kill(lab.pid("server"), signal.SIGKILL)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def taken():
            with contextlib.suppress(OSError):
                thief.bind(("127.0.0.1", before.port))
                return True

        until(taken)
        thief.listen()
        report = lab.finished(attempt)
    assert report.outcome == "succeeded", lab.story(attempt)
    exits = [e.data["failure"] for e in attempt.events.values() if e.kind == "process_exited"]
    assert exits == ["killed", "port_taken"]
    assert lab.folder().memo().url != before.url
    # The client hung at step 1 and never failed: it was moved, at no cost to its restarts.
    assert report.summary["generations"] | {"client": 2} == report.summary["generations"]
    assert lab.folder().memo().free_starts == {"client": 1}


def test_a_stopped_attempt_is_cancelled_and_a_fenced_off_one_keeps_its_evidence(lab):
    stopped = lab.queue(lab.blueprint(steps=50, pause_s=0.2), "a-0000001")
    fenced = lab.queue(lab.blueprint(steps=50, pause_s=0.2), "a-0000002", nonce=f"{lab.nonce}-2")
    worker = lab.worker()
    until(lambda: stopped.steps and fenced.steps, 30)
    stopped.stop_reason = "the campaign was stopped"
    lab.hub.give_up("a-0000002")
    report = lab.finished(stopped)
    assert (report.outcome, report.failure) == ("cancelled", FailureClass.STOPPED)
    assert report.reason == "the campaign was stopped"
    until(lambda: worker.attempts() == [])
    assert fenced.finish is None
    assert lab.folder("a-0000002").finish().outcome == "cancelled"
    assert lab.folder("a-0000002").steps()
    assert count_owned(lab.nonce) == count_owned(f"{lab.nonce}-2") == 0


def test_training_goes_on_while_the_hub_is_away_and_everything_arrives_later(lab):
    attempt = lab.queue(lab.blueprint())
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
    ends = lab.folder().log("server").read_bytes()
    assert attempt.logs["server"] == ends


def test_a_worker_that_was_killed_is_replaced_by_one_that_takes_its_attempt_up(lab):
    attempt = lab.queue(lab.blueprint(steps=3, trouble={"1": "hang"}))
    first = lab.worker_process(attempt)
    until(lambda: (work_of(lab) / "misbehaved.1").exists(), 40)
    first.kill()
    first.wait()
    server, client = lab.pid("server"), lab.pid("client")
    assert lab.folder().latest("server").state() is ProcessState.RUNNING
    assert attempt.finish is None

    worker = lab.worker()
    assert worker.attempts() == [attempt.spec.attempt_id]
    until(lambda: "adopted" in attempt.kinds())
    assert (lab.pid("server"), lab.pid("client")) == (server, client)
    os.kill(client, signal.SIGKILL)
    report = lab.finished(attempt)
    assert report.outcome == "succeeded", lab.story(attempt)
    assert report.summary["generations"]["server"] == 1
    assert sorted(attempt.steps) == [1, 2, 3]
    seqs = [e.seq for e in lab.folder().events()]
    assert seqs == list(range(len(seqs)))


def test_a_round_in_the_middle_is_held_at_its_own_step_while_training_waits(lab):
    plain = lab.blueprint(steps=3)
    rounds = ("initial", "step-1", "step-2", "final")
    evaluator = plain.evaluator.model_copy(update={"rounds": rounds})
    attempt = lab.queue(plain.model_copy(update={"evaluator": evaluator}))
    lab.worker()
    report = lab.finished(attempt)
    assert report.outcome == "succeeded", lab.story(attempt)
    found = {name: attempt.rounds[name] for name in rounds}
    assert [r.step for r in found.values()] == [0, 1, 2, 3]
    # Each was played by the version of its own step alone, so training waited for it.
    for round_ in found.values():
        versions = {item.policy_version for item in round_.items}
        assert versions == {round_.policy_version}
        assert all(item.reward is not None for item in round_.items)
    assert [attempt.steps[k]["eval_round"] for k in (1, 2, 3)] == ["closed"] * 3
