import pytest

from swarm.protocol.config import VerlConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.nonces import NONCE, nonce_of
from swarm.server.engine_verl.placement import require_room


def machine(gpus, cpus=64.0):
    return {"GPU": float(gpus), "CPU": cpus, "memory": 1e9}


def test_without_a_front_a_nonce_is_drawn():
    assert nonce_of({NONCE: "x"}) == "x"
    assert nonce_of({}) != nonce_of({})


@pytest.mark.parametrize(
    ("nodes", "each", "machines"),
    [
        (1, 8, [machine(8)]),
        (4, 8, [machine(0), *[machine(8)] * 4]),
        (2, 4, [machine(8)]),  # two groups on one machine
    ],
)
def test_a_cluster_with_enough_gpus_has_room(nodes, each, machines):
    require_room(machines, VerlConfig(nodes=nodes, gpus_per_node=each))


@pytest.mark.parametrize(
    ("nodes", "each", "machines", "told"),
    [
        (1, 1, [], "its 0 machines have nothing"),
        (1, 8, [machine(4), machine(4)], "1 x 8"),  # never on one machine
        (2, 8, [machine(8)], "its 1 machines have 8 GPUs and 64 CPUs"),
        (1, 8, [machine(8, cpus=16.0)], "8 GPUs and 16 CPUs"),  # each GPU takes three CPUs
        (1, 1, [{"CPU": 4.0}], "0 GPUs and 4 CPUs"),
    ],
)
def test_a_cluster_that_can_never_hold_it_is_refused_with_what_it_has(nodes, each, machines, told):
    with pytest.raises(ConfigError, match="too few GPUs") as refused:
        require_room(machines, VerlConfig(nodes=nodes, gpus_per_node=each))
    assert told in refused.value.message
    assert "ray start --address" in refused.value.hint
