"""verl's estimators over the swarm's rows. Needs `make setup-verl`."""

import math

import numpy as np
import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.tracking.advantages import group_advantages

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

REWARDS = [0.0, 1.0, 0.25]
WORK = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "gpg",
    "opo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "rloo",
    "rloo_vectorized",
)


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "swarm.server.engine_verl.platform_cpu")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def advantages(name, rows, **settings):
    """What the estimator gives each row, and the reward of each."""
    from verl.trainer.config import AlgoConfig

    from swarm.server.engine_verl.estimators import estimated
    from swarm.server.engine_verl.verl_estimators import estimator

    for index, row in enumerate(rows):
        row.reward = REWARDS[index % 3]
    return [row.advantages for row in estimated(rows, estimator(name, AlgoConfig(**settings)))]


@pytest.mark.parametrize("name", WORK)
def test_an_estimator_gives_every_trained_token_a_number(name, rows):
    found = advantages(name, rows)
    assert [len(one) for one in found] == [len(row.logprobs) for row in rows]
    assert np.isfinite(np.concatenate(found)).all()
    assert np.abs(np.concatenate(found)).max() > 0


@pytest.mark.parametrize("name", WORK)
def test_a_group_of_which_one_episode_is_left_fails_no_update(name, rows):
    found = advantages(name, rows[:7])
    assert [len(one) for one in found] == [len(row.logprobs) for row in rows[:7]]
    assert np.isfinite(np.concatenate(found)).all()
    if name == "grpo_passk":
        assert set(found[6]) == {0.0}
        assert found[:6] == advantages(name, rows[:6])


@pytest.mark.parametrize(
    ("theirs", "ours", "settings", "factor"),
    [
        ("rloo", "rloo", {}, 1.0),
        ("grpo", "grpo_no_std", {"norm_adv_by_std_in_grpo": False}, 1.0),
        ("grpo", "grpo", {}, math.sqrt(2 / 3)),  # verl divides by the sample's deviation
    ],
)
def test_where_both_have_a_name_they_agree(theirs, ours, settings, factor, rows):
    want = group_advantages(ours, REWARDS)
    for index, one in enumerate(advantages(theirs, rows, **settings)):
        np.testing.assert_allclose(one, want[index % 3] * factor, rtol=1e-4)


def test_a_discount_reaches_the_estimator(rows):
    plain, discounted = (
        advantages("reinforce_plus_plus", rows, gamma=gamma) for gamma in (1.0, 0.5)
    )
    assert len(set(plain[1])) == 1
    assert len(set(discounted[1])) > 1


def test_an_estimator_that_needs_what_rows_do_not_carry_is_refused():
    from swarm.server.engine_verl.verl_estimators import REFUSED, check_estimator

    for name in REFUSED:
        with pytest.raises(ConfigError, match="cannot be used") as refused:
            check_estimator(name)
        assert "rloo" in refused.value.hint


def test_a_misspelt_estimator_is_refused_with_the_nearest():
    from swarm.server.engine_verl.verl_estimators import check_estimator

    for name in (*WORK, "gae"):
        check_estimator(name)
    with pytest.raises(ConfigError) as refused:
        check_estimator("reinforce++")
    assert "reinforce_plus_plus" in refused.value.hint
