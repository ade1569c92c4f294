import shutil

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, EngineFailed
from swarm.server.engine.torch_engine import TorchEngine
from swarm.server.ports import TrainBatch


def test_a_tampered_checkpoint_is_refused(tiny_config, tmp_path):
    engine = TorchEngine(tiny_config)
    engine.save(str(tmp_path / "ck"))
    state = tmp_path / "ck" / "swarm_state.json"
    state.write_text(state.read_text().replace(engine.info().fingerprint, "0" * 16))
    with pytest.raises(EngineFailed, match="fingerprint"):
        TorchEngine(tiny_config, checkpoint=str(tmp_path / "ck"))


def test_a_resumed_engine_saves_after_its_own_checkpoint_was_deleted(tiny_config, tmp_path):
    TorchEngine(tiny_config).save(str(tmp_path / "first"))
    engine = TorchEngine(tiny_config, checkpoint=str(tmp_path / "first"))
    shutil.rmtree(tmp_path / "first")
    engine.save(str(tmp_path / "second"))
    again = TorchEngine(tiny_config, checkpoint=str(tmp_path / "second"))
    assert again.info().fingerprint == engine.info().fingerprint


def test_the_context_can_be_shortened_but_not_stretched():
    short = TrainConfig.model_validate({"model": {"max_model_len": 64}})
    assert TorchEngine(short).info().max_model_len == 64
    long = TrainConfig.model_validate({"model": {"max_model_len": 4096}})
    with pytest.raises(ConfigError, match="512 positions"):
        TorchEngine(long)


def test_a_batch_that_moves_nothing_keeps_the_policy_version(tiny_config):
    engine = TorchEngine(tiny_config)
    result = engine.train(TrainBatch(step=3, policy_version=1, rows=[]))
    assert (result.step, result.policy_version, result.moved) == (3, 0, False)
    assert engine.info().policy_version == 0


def test_sampling_time_is_reported_once(tiny_config, ask):
    engine = TorchEngine(tiny_config)
    engine.submit(ask("12+34"))
    while engine.busy:
        engine.tick()
    assert engine.train(TrainBatch(1, 1, [])).sampling_cpu_s > 0
    assert engine.train(TrainBatch(2, 2, [])).sampling_cpu_s == 0
