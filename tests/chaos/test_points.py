"""Every trigger point is reached by real processes in a real run; a point that nothing reaches proves nothing."""

import pytest

from swarm.testing.chaos.faults import Provoke, ShotFault
from swarm.testing.chaos.lane import Lane, play
from swarm.testing.chaos.plans import AT_THE_START, EVAL_EVERY, PROVOKED, TORCH_ONLY, toy_config
from swarm.testing.chaos.rig import World
from swarm.triggers import Action, Point


def note(point):
    return ShotFault(point, Action.NOTE, provoke=PROVOKED.get(point, Provoke.NOTHING))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_point_is_reached_in_a_run(tmp_path):
    usual = [p for p in Point if p not in TORCH_ONLY | AT_THE_START]
    world = World(toy_config(80, gated=True), eval_every=EVAL_EVERY)
    lane = Lane("points", world, [note(p) for p in usual], [note(p) for p in AT_THE_START])
    outcome = play(lane, tmp_path, None)
    assert outcome.clean, (outcome.problem, outcome.findings)
    assert outcome.faults == len(usual) + len(AT_THE_START)
