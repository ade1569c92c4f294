"""A small run of chaos from its command, and what the report says of good and bad outcomes."""

import subprocess
import sys

import pytest

from swarm.testing.chaos.audit import Findings
from swarm.testing.chaos.faults import ShotFault
from swarm.testing.chaos.lane import Outcome
from swarm.testing.chaos.plans import TORCH_ONLY, lanes
from swarm.testing.chaos.report import document, problems, table, verdict
from swarm.triggers import Action, Point

GOOD = Outcome("one", Findings(episodes=8, steps=2), {"kill front": [0.5, 1.5]}, compared=True)
LOSS = Outcome("two", Findings(lost=["ep-1: gone"], doubled=["ep-2 twice"]), {"pause": [0.1]})
STUCK = Outcome("three", by_chance={"network: delay": 7}, problem="nothing moved")


def test_the_verdict_counts_faults_and_what_they_cost():
    assert verdict([GOOD]) == "faults 2, lost 0, doubled 0"
    assert verdict([GOOD, LOSS]) == "faults 3, lost 1, doubled 1"
    assert "lanes that did not end 1" in verdict([GOOD, STUCK])


def test_the_table_has_a_line_for_each_kind_and_each_lane():
    text = table([GOOD, LOSS, STUCK])
    assert "kill front" in text
    assert "1.00" in text  # the median of its recoveries
    assert "as undisturbed" in text
    assert text.count("FAILED") == 2


def test_problems_name_their_lane_and_a_clean_run_has_none():
    assert problems([GOOD]) == []
    assert problems([LOSS, STUCK]) == [
        "two: lost: ep-1: gone",
        "two: doubled: ep-2 twice",
        "three: nothing moved",
    ]
    body = document([GOOD, STUCK], seed=3, wall_s=1.0)
    assert body["faults"] == {"kill front": 2, "network: delay": 7}
    assert body["recovery_median_s"] == {"kill front": 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_a_run_breaks_things_over_200_times_and_kills_at_every_point(seed):
    planned = [fault for lane in lanes(seed) for fault in (*lane.at_start, *lane.faults)]
    assert len(planned) > 200
    on_the_toy = [f for lane in lanes(seed) if lane.name != "torch" for f in lane.faults]
    assert len(on_the_toy) > 150
    killed = {f.point for f in planned if isinstance(f, ShotFault) and f.action is Action.KILL}
    assert killed == set(Point)
    assert {f.point for f in lanes(seed)[-1].faults} >= TORCH_ONLY


def test_the_same_seed_plans_the_same_run():
    assert lanes(5) == lanes(5)
    assert [lane.faults for lane in lanes(5)] != [lane.faults for lane in lanes(6)]


def test_a_scaled_run_has_fewer_faults_in_every_lane():
    for whole, part in zip(lanes(0), lanes(0, 0.1), strict=True):
        assert part.faults == whole.faults[: len(part.faults)]
        assert 1 <= len(part.faults) < len(whole.faults)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_small_run_of_chaos_loses_and_doubles_nothing(tmp_path):
    command = [sys.executable, "-m", "swarm.testing.chaos", "--lane", "client", "--scale", "0.2"]
    command += ["--folder", str(tmp_path), "--quiet", "--at-once", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    faults = int(last.split()[1].rstrip(","))
    assert faults >= 4
    assert last == f"faults {faults}, lost 0, doubled 0"
