"""LoRA adapters and a value model in one engine for real: trained, sampled, saved, resumed, exported. Needs `make setup-verl`."""

import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.engine.host import EngineHost
from swarm.server.engine_verl.nonces import NONCE
from swarm.server.ports import TrainBatch
from swarm.testing.engine_kit import Bench

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1800)]

MODEL = "actor_rollout_ref.model"
CONFIG = {
    "engine": "verl",
    "engine_hang_s": 1200,
    "optimizer": {"lr": 5e-3},
    "verl": {
        "adv_estimator": "gae",
        "options": {
            f"{MODEL}.lora_rank": 8,
            f"{MODEL}.lora_alpha": 16,
            "critic.optim.lr": 1e-3,
            "algorithm.lam": 0.95,
        },
    },
}


async def batch(bench, step):
    rows = await bench.rows()
    for index, row in enumerate(rows):
        row.reward = float(index % 2)
    return TrainBatch(step=step, policy_version=step, rows=rows)


async def greedy(bench):
    return (await bench.engine.generate(bench.ask(temperature=0.0))).token_ids


async def test_adapters_and_value_model_are_trained_sampled_resumed_and_exported(tmp_path):
    def make():
        return EngineHost("swarm.server.engine_verl.child", {NONCE: "adapters"})

    bench = Bench(make, TrainConfig.model_validate(CONFIG), tmp_path)
    began = await bench.boot()
    first = await bench.engine.train(await batch(bench, 1))
    second = await bench.engine.train(await batch(bench, 2))
    folder = str(tmp_path / "step-000002")
    saved = await bench.engine.save(folder)
    said = await greedy(bench)
    batch_3 = await batch(bench, 3)
    third = await bench.engine.train(batch_3)
    await bench.engine.close()

    assert len({began.fingerprint, *(r.fingerprint for r in (first, second, third))}) == 4
    # The sampler has what the trainer has: nothing is rounded on the way to it.
    assert max(result.logprob_gap_max for result in (first, second, third)) < 1e-3

    resumed = await bench.boot(folder)
    assert resumed.fingerprint == saved["fingerprint"] == second.fingerprint
    assert await greedy(bench) == said
    again = await bench.engine.train(batch_3)
    await bench.engine.close()
    assert again.fingerprint == third.fingerprint

    config = TrainConfig.model_validate({"model": {"path": folder}})
    plain = Bench(EngineHost, config, tmp_path)
    await plain.boot()
    assert await greedy(plain) == said
    await plain.engine.close()
