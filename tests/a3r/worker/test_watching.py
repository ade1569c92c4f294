"""Stop rules, a server that does not answer, a client that hangs."""

import json
import os
import signal
import sys

import pytest

from a3r.blueprints.model import StopRule
from a3r.core.types import FailureClass
from a3r.store.completeness import last_step
from a3r.testing.waiting import retry_until as until
from a3r.worker.folder import AttemptFolder
from a3r.worker.members import Member
from a3r.worker.scrape.recorder import TrainerLog
from a3r.worker.server_watch import SILENT_LOOKS, SILENT_S, ServerWatch
from a3r.worker.stop_rules import broken_rule, rule_words

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def steps(*values, metric="entropy"):
    return [{"step": n, metric: value} for n, value in enumerate(values, 1)]


def test_a_rule_holds_when_enough_steps_in_a_row_meet_it():
    low = StopRule(metric="entropy", when="below", value=0.5, steps=2, reason="collapse")
    assert broken_rule([low], steps(0.9, 0.4)) is None
    assert broken_rule([low], steps(0.4, 0.9, 0.4)) is None
    assert broken_rule([low], steps(0.4, None, 0.4)) is None
    assert broken_rule([low], steps(0.9, 0.4, 0.3)) is low
    assert broken_rule([], steps(0.1)) is None
    high = StopRule(metric="kl", when="above", value=1, steps=1)
    assert broken_rule([low, high], steps(2.0, metric="kl")) is high
    assert rule_words(low) == "entropy below 0.5 for 2 steps in a row (collapse)"
    assert rule_words(high) == "kl above 1 at one step"


def test_a_number_that_is_none_counts_as_not_finite_only_where_the_update_was_undone():
    rule = StopRule(metric="grad_norm", when="not_finite", steps=1)
    assert broken_rule([rule], steps(None, metric="grad_norm")) is None
    undone = [{"step": 1, "grad_norm": None, "rolled_back": "the loss was NaN"}]
    assert broken_rule([rule], undone) is rule
    assert broken_rule([rule], steps(float("nan"), metric="grad_norm")) is rule


def test_a_silent_server_is_dead_only_after_a_time_and_a_number_of_looks(tmp_path):
    watch = ServerWatch(Member(AttemptFolder(tmp_path)))
    assert not any(watch.is_dead(n, answered=False) for n in range(SILENT_LOOKS * 2))  # too soon
    assert not watch.is_dead(30, answered=True)
    assert not watch.is_dead(31, answered=False)
    # The host slept: much time, few looks.
    assert not watch.is_dead(31 + 10 * SILENT_S, answered=False)
    looks = [watch.is_dead(32 + 10 * SILENT_S + n, answered=False) for n in range(SILENT_LOOKS)]
    assert looks.count(True) == 1


@linux
@pytest.mark.timeout(120)
def test_a_stop_rule_ends_the_run_early_and_its_result_counts(lab):
    rule = StopRule(metric="reward_mean", when="above", value=-1.0, steps=2)
    given = lab.blueprint(steps=40).model_copy(update={"stop_rules": (rule,)})
    attempt = lab.queue(given)
    lab.worker()
    report = lab.finished(attempt, 100)
    assert report.outcome == "succeeded", lab.story(attempt)
    stopped = report.summary["stopped_at"]
    assert 3 <= stopped < 40
    assert sorted(attempt.steps) == list(range(1, stopped + 1))
    assert attempt.rounds["final"].step == stopped
    assert last_step(given, report.summary) == stopped
    assert last_step(lab.blueprint(steps=40), report.summary) == 40  # no rule, no early end
    assert "stop_rule" in attempt.kinds()


@linux
@pytest.mark.timeout(120)
def test_a_stop_rule_with_outcome_fail_ends_the_run_without_a_result(lab):
    rule = StopRule(metric="reward_mean", when="above", value=-1.0, steps=1, outcome="fail")
    attempt = lab.queue(lab.blueprint(steps=40).model_copy(update={"stop_rules": (rule,)}))
    lab.worker()
    report = lab.finished(attempt, 100)
    assert (report.outcome, report.failure) == ("failed", FailureClass.STOP_RULE)
    assert "reward_mean above -1 at one step" in report.reason


@linux
@pytest.mark.timeout(120)
def test_a_client_that_hangs_once_is_started_again_at_the_stall_deadline_and_the_run_succeeds(lab):
    limits = {"stall_deadline_s": 10}
    attempt = lab.queue(lab.blueprint(trouble={"1": "hang"}, limits=limits))
    lab.worker()
    report = lab.finished(attempt, 100)
    assert report.outcome == "succeeded", lab.story(attempt)
    assert report.summary["generations"]["client"] == 2
    ended = [e.data for e in attempt.events.values() if e.kind == "process_exited"]
    assert "it hung: no step completed after step 1" in ended[0]["how"]


@linux
@pytest.mark.timeout(120)
def test_a_sandboxed_client_leaves_nothing_behind_when_its_walls_are_killed(lab):
    attempt = lab.queue(lab.blueprint(trouble={"1": "hang"}))
    lab.worker()
    until(lambda: (lab.folder().path / "work" / "client" / "misbehaved.1").exists(), 60)
    os.kill(lab.pid("client"), signal.SIGKILL)
    report = lab.finished(attempt, 60)
    assert report.outcome == "succeeded", lab.story(attempt)
    told = report.summary["environments"]["client"]["sandbox"]
    assert told["mode"] == "auto"
    assert set(told["enforced"]) | set(told["not_enforced"]) >= {"files", "processes", "network"}


@linux
@pytest.mark.timeout(150)
def test_the_steps_of_a_foreign_trainer_are_read_from_its_log_and_kept_with_the_run(lab):
    plain = lab.blueprint(steps=3, verl=True)
    client = plain.clients[0].model_copy(update={"trainer_log": "verl"})
    attempt = lab.queue(plain.model_copy(update={"clients": (client,)}))
    lab.worker()
    assert lab.finished(attempt, 90).outcome == "succeeded", lab.story(attempt)
    told = [json.loads(line) for line in attempt.logs["trainer-client"].splitlines()]
    assert [line["step"] for line in told] == list(range(told[0]["step"], told[-1]["step"] + 1))
    by_step = {line["step"]: line for line in told}
    assert by_step[3] == {"step": 3, "loss": 0.25, "reward_mean": 0.5}
    assert by_step[2]["not_finite"] == ["loss"]
    assert attempt.kinds().count("trainer_not_finite") == 1


def test_a_trainers_log_is_read_again_after_a_restart_and_written_once(tmp_path):
    log, out = tmp_path / "client.log", tmp_path / "trainer-client.log"
    log.write_text("step:1 - actor/pg_loss:0.5\nnoise\nstep:2 - actor/pg_loss:0.4\n")
    assert [s.step for s in TrainerLog("verl", log, out).record()] == [1, 2]
    with log.open("a") as file:
        file.write("step:3 - actor/pg_loss:0.3\n")
    again = TrainerLog("verl", log, out)
    assert [s.step for s in again.record()] == [3]
    assert again.record() == []
    assert [json.loads(line)["step"] for line in out.read_text().splitlines()] == [1, 2, 3]
