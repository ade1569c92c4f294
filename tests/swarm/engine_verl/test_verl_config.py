"""The keys that the swarm sets, and those that a user may, are keys of the installed verl. Needs `make setup-verl`."""

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.losses import WEIGHING

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(
        "ignore:set sequence parallel to false"
    ),  # Megatron's section of verl
]


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


ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"


def test_a_users_key_reaches_verl_where_the_swarm_has_no_word_for_it():
    options = {"actor_rollout_ref": {"actor": {"entropy_coeff": 0.5}}}
    assert composed(options=options).actor_rollout_ref.actor.entropy_coeff == 0.5


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        (f"{ACTOR}.optim.lr", 0.5, "optimizer.lr"),
        (f"{ACTOR}.policy_loss.loss_mode", "gspo", "verl.loss"),
        (f"{MODEL}.path", "/elsewhere", "model.path"),
        ("data.train_batch_size", 3, "batch.tasks"),
    ],
)
def test_what_the_swarm_has_a_word_for_is_refused_with_the_word(key, value, word):
    with pytest.raises(ConfigError) as refused:
        composed(options={key: value})
    assert word in refused.value.hint


def test_every_key_that_is_refused_exists_in_the_installed_verl():
    from swarm.server.engine_verl.options import value_at
    from swarm.server.engine_verl.owned import OWNED

    tree = composed("cuda", adv_estimator="gae")
    missing = [key for key in OWNED if value_at(tree, key.rpartition(".")[0]) is None]
    assert missing == []


def test_verls_own_checks_speak_before_a_worker_starts():
    with pytest.raises(ConfigError, match="ppo_micro_batch_size_per_gpu"):
        composed(options={f"{ACTOR}.use_dynamic_bsz": False})


def test_adapters_are_merged_and_exported_by_us():
    section = composed(options={f"{MODEL}.lora_rank": 4}).actor_rollout_ref
    assert section.model.lora.merge
    assert "hf_model" not in section.actor.checkpoint.save_contents
    with pytest.raises(ConfigError, match="merge"):
        composed(options={f"{MODEL}.lora_rank": 4, f"{MODEL}.lora.merge": False})


def test_a_value_model_begins_as_the_policy_unless_told_otherwise():
    critic = composed(adv_estimator="gae", options={"critic.optim.lr": 0.5}).critic
    assert (critic.model.path, critic.strategy, critic.optim.lr) == ("/model", "fsdp2", 0.5)
    other = composed(adv_estimator="gae", options={"critic.model.path": "/other"}).critic
    assert other.model.path == "/other"


def test_an_unknown_estimator_is_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="no advantage estimator"):
        composed(adv_estimator="grpoo")


def test_a_misspelt_key_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as refused:
        composed(options={"actor_rollout_ref.rollout.tensor_model_paralel_size": 2})
    assert "tensor_model_parallel_size" in refused.value.hint


def test_a_token_budget_below_the_longest_row_is_refused():
    key = f"{ACTOR}.ppo_max_token_len_per_gpu"
    with pytest.raises(ConfigError, match="512 tokens") as refused:
        composed(options={key: 300})
    assert "512 or more" in refused.value.hint
    assert composed("cuda", options={key: 300, f"{ACTOR}.ulysses_sequence_parallel_size": 2})


def test_rows_fill_ranks_and_fixed_micro_batches():
    from swarm.server.engine_verl.budgets import row_multiple

    fixed = {
        f"{ACTOR}.use_dynamic_bsz": False,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 3,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 1,
    }
    assert row_multiple(composed(), 4, critic=False) == 4
    assert row_multiple(composed(options=fixed), 4, critic=False) == 24


def test_a_loss_that_misses_a_key_of_its_own_is_refused_at_boot():
    beta = f"{ACTOR}.policy_loss.dro_beta"
    with pytest.raises(ConfigError, match="dro_beta"):
        composed(loss="dro")
    assert composed(loss="dro", options={beta: 0.1}).actor_rollout_ref.actor.policy_loss
    for loss in WEIGHING:
        composed(loss=loss, options={beta: 0.1})
