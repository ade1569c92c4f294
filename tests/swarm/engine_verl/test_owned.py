import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.owned import OWNED, check_owned

ACTOR = "actor_rollout_ref.actor"
BEFORE = {
    "actor_rollout_ref": {"actor": {"optim": {"lr": 1e-6, "weight_decay": 0.0}, "entropy_coeff": 0}}
}


def check(options, estimator=None):
    check_owned(BEFORE, options, estimator=estimator)


def test_a_key_that_the_swarm_has_a_word_for_is_refused_with_the_word():
    with pytest.raises(ConfigError, match=r"optim\.lr") as refused:
        check({f"{ACTOR}.optim.lr": 0.5})
    assert "optimizer.lr" in refused.value.hint


def test_saying_the_same_again_is_no_contradiction():
    check({ACTOR: {"optim": {"lr": 1e-6}}})


def test_keys_of_the_workers_pass():
    check({f"{ACTOR}.entropy_coeff": 0.01, "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5})


@pytest.mark.parametrize("key", ["trainer.total_epochs", "algorithm.gamma", "critic.optim.lr"])
def test_what_nothing_would_read_is_refused(key):
    with pytest.raises(ConfigError, match="nothing reads"):
        check({key: 1})


def test_an_estimator_reads_its_section_and_only_gae_has_a_value_model():
    check({"algorithm.gamma": 0.9}, estimator="reinforce_plus_plus")
    check({"algorithm.lam": 0.9, "critic.optim.lr": 1e-5}, estimator="gae")
    with pytest.raises(ConfigError, match="nothing reads"):
        check({"critic.optim.lr": 1e-5}, estimator="rloo")
    with pytest.raises(ConfigError, match="nothing reads"):
        check({"algorithm.kl_ctrl.kl_coef": 0.1}, estimator="gae")


@pytest.mark.parametrize(
    "options",
    [
        {"actor_rollout_ref.model.override_config": {"_target_": "os.system", "command": "true"}},
        {"actor_rollout_ref.model.a_list": [{"deep": [{"_target_": "os.system"}]}]},
        {ACTOR: {"_args_": ["true"]}},
    ],
)
def test_what_makes_a_section_is_not_a_user_s_to_say(options):
    with pytest.raises(ConfigError, match="made by"):
        check(options)


def test_every_word_of_the_swarm_is_said():
    assert all(OWNED.values())
