"""Every trigger point is reached by real processes in a real run; a point that nothing reaches proves nothing."""

import pytest

from swarm.testing.chaos.faults import Provoke, ShotFault
from swarm.testing.chaos.lane import Lane, play
from swarm.testing.chaos.plans import EVAL_EVERY, PROVOKED, SHARED_ONLY, TORCH_ONLY, toy_config
from swarm.testing.chaos.world import World
from swarm.triggers import Action, Point, recording


def note(point):
    return ShotFault(point, Action.NOTE, provoke=PROVOKED.get(point, Provoke.NOTHING))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_point_is_reached_in_a_run(tmp_path):
    points = [p for p in Point if p not in TORCH_ONLY | SHARED_ONLY]
    world = World(toy_config(90, gated=True), eval_every=EVAL_EVERY)
    outcome = play(Lane("points", world, [note(p) for p in points]), tmp_path, None)
    assert outcome.clean, (outcome.problem, outcome.findings)
    assert outcome.faults == len(points)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_points_of_a_shared_queue_are_reached_at_its_start(tmp_path):
    world = World(toy_config(3), shared=True)
    lane = Lane("points", world, [], at_start=[note(p) for p in sorted(SHARED_ONLY)])
    assert play(lane, tmp_path, None).clean


def test_the_points_of_a_real_checkpoint_are_reached_when_one_is_replaced(tmp_path):
    import torch

    from swarm.protocol.config import OptimizerConfig
    from swarm.server.engine.checkpoint import CheckpointState, write_checkpoint
    from swarm.server.engine.weights import load_model
    from swarm.server.model_files import resolve_model

    source = resolve_model("builtin:tiny-calc")
    model = load_model(source)
    optimizer = torch.optim.AdamW(model.parameters(), lr=OptimizerConfig().lr)
    with recording() as seen:
        for _ in range(2):
            write_checkpoint(
                tmp_path / "step", model, optimizer, CheckpointState(1, 1, "f"), source
            )
    assert set(seen) == TORCH_ONLY
