"""Weights over TCP, among threads that stand for workers. Needs `make setup-verl`; seconds."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),  # verl's own, in this process
]


@pytest.mark.parametrize("bucket", [64, 1 << 16])
def test_every_rollout_worker_gets_every_weight(bucket):
    import torch

    from swarm.server.engine_verl.gloo_weights import GlooCheckpointEngine

    weights = {
        "larger than a bucket": torch.arange(50, dtype=torch.float32).view(5, 10),
        "sixteen bits": torch.randn(7).to(torch.bfloat16),
        "one number": torch.tensor(3, dtype=torch.int64),
        "a matrix": torch.arange(6.0).view(2, 3),
    }
    trainers = [GlooCheckpointEngine(bucket, is_master=first) for first in (True, False)]
    receivers = [GlooCheckpointEngine(bucket) for _ in range(2)]
    told = [engine.prepare() for engine in (*trainers, *receivers)]
    for_trainers, for_receivers = GlooCheckpointEngine.build_topology(2, 2, told)
    walked = []

    def trainer(index):
        engine = trainers[index]
        engine.init_process_group(**{name: values[index] for name, values in for_trainers.items()})
        given = ((walked.append((index, name)), (name, w))[1] for name, w in weights.items())
        asyncio.run(engine.send_weights(given))
        engine.finalize()

    def receiver(index):
        engine = receivers[index]
        engine.init_process_group(**{name: values[index] for name, values in for_receivers.items()})

        async def all_of_them():
            return {name: tensor.clone() async for name, tensor in engine.receive_weights()}

        found = asyncio.run(all_of_them())
        engine.finalize()
        return found

    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(trainer, index) for index in (0, 1)]
        got = [pool.submit(receiver, index) for index in (0, 1)]
        for one in sent:
            one.result(120)
        for one in got:
            found = one.result(120)
            assert list(found) == list(weights)
            assert all(torch.equal(found[name], weights[name]) for name in weights)
            assert [found[n].dtype for n in weights] == [weights[n].dtype for n in weights]
    assert sorted(walked) == sorted((index, name) for index in (0, 1) for name in weights)
