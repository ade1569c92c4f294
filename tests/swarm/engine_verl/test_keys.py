import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.keys import uses_reference, verl_keys
from swarm.server.engine_verl.losses import WEIGHING, check_loss
from swarm.server.engine_verl.sampling import seed_of, vllm_request
from swarm.server.ports import GenerateRequest, SamplingParams


def config(**changes):
    return TrainConfig.model_validate({"engine": "verl", **changes})


def test_the_words_of_the_swarm_become_those_of_verl():
    chosen = config(
        optimizer={"lr": 3e-6, "grad_clip": 0.5},
        algorithm={"clip_low": 0.1, "clip_high": 0.3},
        verl={"nodes": 2, "gpus_per_node": 8},
    )
    keys = verl_keys(chosen, folder="/m", max_len=4096)
    assert keys["actor_rollout_ref.actor.optim.lr"] == 3e-6
    assert keys["actor_rollout_ref.actor.optim.clip_grad"] == 0.5
    assert keys["actor_rollout_ref.actor.clip_ratio_low"] == 0.1
    assert keys["actor_rollout_ref.actor.clip_ratio_high"] == 0.3
    assert (keys["trainer.nnodes"], keys["trainer.n_gpus_per_node"]) == (2, 8)
    assert keys["actor_rollout_ref.rollout.max_model_len"] == 4096


def test_prompt_and_answer_fill_the_context_together():
    keys = verl_keys(config(), folder="/m", max_len=100)
    rollout = "actor_rollout_ref.rollout"
    assert keys[f"{rollout}.prompt_length"] + keys[f"{rollout}.response_length"] == 100


def test_a_reference_model_is_kept_only_for_a_penalty():
    assert not uses_reference(config())
    assert uses_reference(config(algorithm={"kl_coef": 0.01}))


def test_a_loss_that_does_not_weigh_tokens_is_refused_with_those_that_do():
    check_loss("vanilla")
    with pytest.raises(ConfigError) as refused:
        check_loss("geo_mean")
    assert all(name in refused.value.hint for name in WEIGHING)


def test_a_request_carries_seed_stops_and_limits_to_vllm():
    request = GenerateRequest(
        request_id="r",
        prompt_ids=[1, 2],
        max_tokens=7,
        temperature=0.5,
        stop_token_ids=[2],
        noise_key="k",
        affinity="e",
        params=SamplingParams(top_k=0, logit_bias={3: 1.0}),
    )
    sent = vllm_request(request)
    assert sent["prompt"] == [1, 2]
    assert sent["params"]["top_k"] == -1
    assert sent["params"]["max_tokens"] == 7
    assert sent["params"]["logit_bias"] == {3: 1.0}
    assert not sent["params"]["detokenize"]
    assert 0 <= sent["params"]["seed"] == seed_of("k") < 2**63
    assert seed_of("k") != seed_of("l")
