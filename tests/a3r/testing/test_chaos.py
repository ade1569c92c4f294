"""The audit of the campaigns' chaos finds what it is there for, and a small run of it from its command."""

import os
import signal
import subprocess
import sys

import pytest

from a3r.store.store import Store
from a3r.testing.chaos.audit import with_mark
from a3r.testing.chaos.bystanders import Bystanders
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.findings import Findings, Outcome
from a3r.testing.chaos.lanes import lanes
from a3r.testing.chaos.report import document, problems, table, verdict
from a3r.testing.waiting import retry_until
from a3r.worker.processes import count_owned, sweep
from a3r.worker.supervisor import NONCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

GOOD = Outcome("one", Findings(runs=4, bystanders=3), {"kill -9 front": [0.5, 1.5]})
LOSS = Outcome("two", Findings(lost=["run r"], foreign=["it was ended"], kept=["gpu:0"]))
STUCK = Outcome("three", problem="nothing moved")
ABSENT = Outcome("four", skipped="needs sshd")


def test_the_verdict_counts_faults_and_what_they_cost():
    assert verdict([GOOD]) == "faults 2, lost 0, doubled 0, foreign 0"
    assert verdict([GOOD, LOSS]) == "faults 2, lost 1, doubled 0, foreign 1, not returned 1"
    assert "lanes that did not end 1" in verdict([GOOD, STUCK])
    assert "lanes that this machine cannot play 1" in verdict([GOOD, ABSENT])


def test_problems_name_their_lane_and_what_could_not_be_played_is_none():
    assert problems([GOOD, ABSENT]) == []
    assert problems([LOSS, STUCK]) == [
        "two: lost: run r",
        "two: foreign: it was ended",
        "two: not returned: gpu:0",
        "three: nothing moved",
    ]
    text = table([GOOD, LOSS, STUCK, ABSENT])
    assert text.count("FAILED") == 2
    assert "not played: needs sshd" in text
    body = document([GOOD, LOSS], seed=1, wall_s=2.0)
    assert body["faults"] == {"kill -9 front": 2}


def test_a_bystander_tells_of_every_signal_and_of_its_end(tmp_path):
    others = Bystanders(tmp_path / "bystanders")
    try:
        others.resemble("nonce-1", "at-1")
        assert len(others) == 3
        assert others.harmed() == []
        # What a run's own clean-up does is none of theirs, though their names say so.
        assert count_owned("nonce-1") == 0
        sweep({NONCE: "nonce-1"}, 0.1)
        assert others.harmed() == []
        pid = others.start("told", "x")
        os.kill(pid, signal.SIGTERM)
        retry_until(others.harmed)
        assert others.harmed() == [f"told (pid {pid}) got signals {int(signal.SIGTERM)}"]
        os.kill(others.start("ended", "y"), signal.SIGKILL)
        retry_until(lambda: len(others.harmed()) == 2)
    finally:
        others.end()


def test_processes_are_found_by_their_mark_and_not_by_a_part_of_it():
    argv = [sys.executable, "-c", "input()", "a3r-mark-1"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        retry_until(lambda: with_mark("a3r-mark-1"))
        assert with_mark("a3r-mark-1") == [process.pid]
        assert with_mark("a3r-mark") == []
        process.communicate(b"\n")
    assert with_mark("a3r-mark-1") == []


def test_a_filed_campaign_has_the_planners_own_first_stage(tmp_path):
    with Store.open(tmp_path / "a3r.db") as store:
        _file_and_look(store, tmp_path)


def _file_and_look(store, tmp_path):
    study = Study(seeds=2, mischief={"deaf": True}, settings={"resources.gpus": 1})
    campaign = file_campaign(store, study, tmp_path)
    blueprints = [row.blueprint for row in store.blueprints(campaign)]
    assert [b.factors for b in blueprints] == [{"train_batch_size": 1}, {"train_batch_size": 2}]
    assert {len(b.seeds) for b in blueprints} == {2}
    assert all(b.clients[0].arguments["deaf"] and b.resources.gpus == 1 for b in blueprints)
    assert store.artifact(store.blueprints(campaign)[0].artifact_sha)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lane", ["fencing", "gpus"])
def test_a_lane_is_played_from_its_command(lane, tmp_path):
    command = [sys.executable, "-m", "a3r.testing.chaos", "--lane", lane, "--scale", "0.15"]
    report = tmp_path / "report.json"
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "files"), "--json", str(report), "--quiet"],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    last = done.stdout.splitlines()[-1] if done.stdout else done.stderr[-2000:]
    assert last.endswith("lost 0, doubled 0, foreign 0"), done.stdout + done.stderr[-3000:]
    assert done.returncode == 0
    assert report.exists()


def test_every_lane_has_a_name_of_its_own():
    names = [lane.name for lane in lanes()]
    assert len(set(names)) == len(names) >= 9
