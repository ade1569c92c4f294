"""The keys that the swarm sets, and those that a user may, are keys of the installed verl. Needs `make setup-verl`."""

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    from swarm.server.engine_verl.child import QUIET

    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "swarm.server.engine_verl.platform_cpu")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def composed(device="cpu", **verl):
    from swarm.server.engine_verl.verl_config import compose

    config = TrainConfig.model_validate({"engine": "verl", "verl": verl})
    return compose(config, folder="/model", max_len=512, device=device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_key_that_the_swarm_sets_exists(device):
    rollout = composed(device).actor_rollout_ref.rollout
    assert (rollout.name, rollout.max_model_len) == ("vllm", 512)


def test_megatron_has_the_keys_too():
    assert composed("cuda", strategy="megatron").actor_rollout_ref.actor.strategy == "megatron"


def test_a_users_key_wins_over_the_swarms_word():
    options = {"actor_rollout_ref": {"actor": {"optim": {"lr": 0.5}}}}
    assert composed(options=options).actor_rollout_ref.actor.optim.lr == 0.5


def test_a_misspelt_key_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as refused:
        composed(options={"actor_rollout_ref.rollout.tensor_model_paralel_size": 2})
    assert "tensor_model_parallel_size" in refused.value.hint
