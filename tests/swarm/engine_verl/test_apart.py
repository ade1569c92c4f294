import pytest

from swarm.protocol.config import RolloutGpus, VerlConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.apart import apart_keys, fits, replica_sizes, shapes

ROLLOUT = "actor_rollout_ref.rollout"


def verl(nodes=1, gpus_per_node=1, **rest):
    return VerlConfig(rollout_gpus=RolloutGpus(nodes=nodes, gpus_per_node=gpus_per_node), **rest)


def test_a_shared_rollout_needs_no_keys_and_no_places_of_its_own():
    assert apart_keys(VerlConfig(), device="cuda") == {}
    assert replica_sizes(VerlConfig(), 1) == []
    assert shapes(VerlConfig(nodes=2, gpus_per_node=8)) == [8, 8]


@pytest.mark.parametrize(("device", "backend"), [("cuda", "nccl"), ("cpu", "swarm_gloo")])
def test_a_rollout_apart_never_sleeps_and_gets_its_weights_over_a_network(device, backend):
    keys = apart_keys(verl(), device=device)
    assert keys[f"{ROLLOUT}.checkpoint_engine.backend"] == backend
    assert keys[f"{ROLLOUT}.free_cache_engine"] is False


@pytest.mark.parametrize(
    ("nodes", "gpus", "width", "sizes"),
    [
        (1, 2, 1, [[1], [1]]),
        (1, 8, 4, [[4], [4]]),
        (2, 8, 16, [[8, 8]]),
        (2, 2, 2, [[2], [2]]),
    ],
)
def test_replicas_fill_the_rollout_s_gpus(nodes, gpus, width, sizes):
    assert replica_sizes(verl(nodes, gpus), width) == sizes


@pytest.mark.parametrize(("nodes", "gpus", "width"), [(1, 8, 3), (2, 3, 2), (1, 2, 4)])
def test_replicas_that_do_not_fill_them_are_refused(nodes, gpus, width):
    with pytest.raises(ConfigError, match="do not fill"):
        replica_sizes(verl(nodes, gpus), width)


def test_trainer_and_rollout_both_need_room_on_the_machines():
    groups = shapes(VerlConfig(gpus_per_node=4, rollout_gpus=RolloutGpus(gpus_per_node=4)))
    assert groups == [4, 4]
    assert fits(groups, [8])
    assert fits(groups, [4, 5])
    assert not fits(groups, [7])
    assert not fits(groups, [2, 2, 2, 2])
    assert fits([], [])
