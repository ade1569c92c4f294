"""Weights for replicas and replacements for dead ones, without Ray: replicas are small fakes."""

import pytest

from swarm.protocol.errors import EngineFailed
from swarm.server.constraints import Grammars
from swarm.server.engine_verl.rollout import Rollout
from swarm.server.engine_verl.supply import DEATHS, STUCK_S, TRIES, Supply
from swarm.server.model_files import resolve_model
from swarm.testing.fake_replica import FakeServer, RayActorError
from swarm.testing.waiting import retry_until

GRAMMARS = Grammars(resolve_model("builtin:tiny-calc"), 64, [0])


class FakeReplicas:
    """Two replicas that serve ``weights``; ``failing`` says how many launches fail before one succeeds."""

    def __init__(self, failing=0):
        self.weights = [1]
        self.servers = [FakeServer(self.weights) for _ in range(2)]
        self.replaced = []
        self.dies_in_hand_over = None
        self.failing = failing

    def serve(self, version):
        if self.dies_in_hand_over is not None:
            dying, self.dies_in_hand_over = self.dies_in_hand_over, None
            dying()
        for server in self.servers:
            server.tokens = self.weights

    def served(self, ranks=(0, 1)):
        return {
            rank: [f"served {s.tokens}"] for rank, s in enumerate(self.servers) if rank in ranks
        }

    def replace(self, rank, version):
        self.replaced.append((rank, version))
        if self.failing:
            self.failing -= 1
            raise RuntimeError("no machine")
        self.servers[rank] = FakeServer(self.weights)
        return self.servers[rank]


class Bench:
    def __init__(self, **options):
        self.replicas = FakeReplicas(**options)
        self.rollout = Rollout(self.replicas.servers, GRAMMARS)
        self.now = 0.0
        self.supply = Supply(self.replicas, self.rollout, clock=lambda: self.now)

    async def kill(self, rank):
        server = self.replicas.servers[rank]
        await retry_until(lambda: server.watched, timeout_s=20)
        server.kill()
        await retry_until(lambda: rank in self.rollout.dead, timeout_s=20)


@pytest.fixture
def bench_of():
    made = []

    def make(**options):
        made.append(Bench(**options))
        made[-1].supply.serve(0)
        return made[-1]

    yield make
    for bench in made:
        bench.rollout.close()


async def test_nothing_dead_is_nothing_to_mend(bench_of):
    bench = bench_of()
    assert bench.supply.mend(0) == []
    assert bench.supply.served == {0: ["served [1]"], 1: ["served [1]"]}


async def test_a_dead_replica_is_replaced_with_the_weights_of_now(bench_of):
    bench = bench_of()
    await bench.kill(1)
    assert bench.supply.mend(7) == [1]
    assert bench.replicas.replaced == [(1, 7)]
    assert (bench.rollout.dead, bench.rollout.lost) == ({}, "")


async def test_a_launch_that_fails_is_tried_again(bench_of):
    bench = bench_of(failing=TRIES - 1)
    await bench.kill(0)
    assert bench.supply.mend(0) == [0]
    assert len(bench.replicas.replaced) == TRIES


async def test_a_replica_that_cannot_be_launched_ends_sampling(bench_of):
    bench = bench_of(failing=TRIES)
    await bench.kill(0)
    assert bench.supply.mend(0) == []
    await retry_until(lambda: "no machine" in bench.rollout.lost, timeout_s=20)


async def test_a_replica_that_serves_other_weights_ends_sampling(bench_of):
    bench = bench_of()
    await bench.kill(0)
    bench.replicas.weights = [2]
    assert bench.supply.mend(0) == []
    await retry_until(lambda: "it serves ['served [2]']" in bench.rollout.lost, timeout_s=20)


async def test_what_dies_again_and_again_ends_sampling_unless_updates_succeed(bench_of):
    bench = bench_of()
    for _ in range(DEATHS):
        await bench.kill(0)
        assert bench.supply.mend(0) == [0]
    bench.supply.serve(1)
    for _ in range(DEATHS):
        await bench.kill(0)
        assert bench.supply.mend(1) == [0]
    await bench.kill(0)
    assert bench.supply.mend(1) == []
    await retry_until(lambda: "again and again" in bench.rollout.lost, timeout_s=20)


async def test_a_replica_that_died_before_a_hand_over_gets_the_new_weights(bench_of):
    bench = bench_of()
    await bench.kill(1)
    bench.replicas.weights = [2]
    bench.supply.serve(1)
    assert bench.replicas.replaced == [(1, 1)]
    assert bench.supply.served == {0: ["served [2]"], 1: ["served [2]"]}


async def test_a_death_in_a_hand_over_is_mended_once(bench_of):
    bench = bench_of()

    def dying():
        bench.rollout.dead[1] = "killed"
        raise RayActorError("killed")

    bench.replicas.dies_in_hand_over = dying
    bench.replicas.weights = [2]
    bench.supply.serve(1)
    assert bench.replicas.replaced == [(1, 1)]
    assert bench.supply.served[0] == ["served [2]"]


async def test_a_hand_over_that_waits_for_a_dead_replica_is_given_up_after_a_while(bench_of):
    bench = bench_of()

    def waiting():
        bench.supply.check_stuck()
        bench.rollout.dead[1] = "killed"
        bench.supply.check_stuck()
        bench.now += STUCK_S
        bench.supply.check_stuck()
        bench.now += 1
        with pytest.raises(EngineFailed, match="given weights"):
            bench.supply.check_stuck()
        raise RayActorError("killed")

    bench.replicas.dies_in_hand_over = waiting
    bench.supply.serve(1)
    bench.now += 2 * STUCK_S
    bench.supply.check_stuck()


async def test_a_hand_over_that_fails_for_another_reason_fails(bench_of):
    bench = bench_of()

    def broken():
        raise RuntimeError("shapes do not fit")

    bench.replicas.dies_in_hand_over = broken
    with pytest.raises(RuntimeError, match="shapes"):
        bench.supply.serve(1)
    bench.supply.check_stuck()


async def test_nothing_is_handed_over_beside_a_replica_that_could_not_be_replaced(bench_of):
    bench = bench_of()
    bench.replicas.failing, bench.replicas.weights = TRIES, [2]
    await bench.kill(1)
    with pytest.raises(EngineFailed, match="no machine"):
        bench.supply.serve(1)
    assert bench.replicas.servers[0].tokens == [1]
