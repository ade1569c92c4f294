"""Trigger points: silent unless armed, each shot fires once, and no process but the one that reached the point feels it."""

import signal
import subprocess
import sys

import pytest

from swarm import triggers
from swarm.triggers import Action, Point, Shot, Triggered

REACH = """
import sys
from swarm.triggers import Point, arm, hit
arm(sys.argv[1])
for n in range(3):
    hit(Point.STEP_READY)
    print(n, flush=True)
"""


@pytest.fixture
def armed(tmp_path):
    """This process armed with a folder, and disarmed at the end."""
    with triggers.armed(tmp_path):
        yield tmp_path


def reach(folder):
    command = [sys.executable, "-c", REACH, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_point_does_nothing_in_a_process_that_was_not_armed(tmp_path):
    triggers.arm("")
    triggers.load(tmp_path, Shot("one", Point.STEP_READY, Action.RAISE))
    triggers.hit(Point.STEP_READY)
    assert triggers.unload(tmp_path)


def test_a_shot_fires_at_its_nth_passing_and_only_once(armed):
    triggers.load(armed, Shot("one", Point.STEP_READY, Action.RAISE, nth=2))
    triggers.hit(Point.STEP_READY)
    triggers.hit(Point.STEP_OPENED)
    assert triggers.fired(armed, "one") is None
    with pytest.raises(Triggered, match=r"step\.ready"):
        triggers.hit(Point.STEP_READY)
    assert triggers.fired(armed, "one") is not None
    triggers.hit(Point.STEP_READY)
    triggers.hit(Point.STEP_READY)


def test_passings_are_counted_from_when_the_shot_was_loaded(armed):
    triggers.load(armed, Shot("one", Point.STEP_READY, Action.RAISE, nth=2))
    triggers.hit(Point.STEP_READY)
    triggers.load(armed, Shot("two", Point.STEP_READY, Action.RAISE, nth=2))
    triggers.hit(Point.STEP_READY)
    with pytest.raises(Triggered, match="two"):
        triggers.hit(Point.STEP_READY)
    assert triggers.fired(armed, "one") is None


def test_a_shot_that_is_unloaded_in_time_never_fires(armed):
    triggers.load(armed, Shot("one", Point.STEP_READY, Action.RAISE))
    assert triggers.unload(armed)
    triggers.hit(Point.STEP_READY)
    assert not triggers.unload(armed)


def test_a_kill_ends_the_process_that_reached_the_point_and_names_it(tmp_path):
    triggers.load(tmp_path, Shot("one", Point.STEP_READY, Action.KILL, nth=2))
    killed = reach(tmp_path)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "0\n")
    assert triggers.fired(tmp_path, "one")
    unharmed = reach(tmp_path)
    assert (unharmed.returncode, unharmed.stdout) == (0, "0\n1\n2\n")


def test_a_note_changes_nothing_but_its_claim(tmp_path):
    triggers.load(tmp_path, Shot("one", Point.STEP_READY, Action.NOTE))
    assert reach(tmp_path).returncode == 0
    assert triggers.fired(tmp_path, "one")


def test_recording_collects_the_points_of_the_block_and_no_shot_fires_in_it(armed):
    triggers.load(armed, Shot("one", Point.STEP_READY, Action.RAISE))
    with triggers.recording() as seen:
        triggers.hit(Point.STEP_READY)
        triggers.hit(Point.STEP_OPENED)
    assert seen == [Point.STEP_READY, Point.STEP_OPENED]
    with pytest.raises(Triggered):
        triggers.hit(Point.STEP_READY)


def test_every_point_belongs_to_the_front_the_engine_or_the_client():
    by_process = {point.process for point in Point}
    assert by_process == {"front", "engine", "client"}
