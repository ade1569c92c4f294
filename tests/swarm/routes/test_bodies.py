import math

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.episodes import FinishRequest, GrantRequest
from swarm.protocol.errors import ConfigError, RequestError
from swarm.server.routes.bodies import parse_object, validate, validate_config


@pytest.mark.parametrize(
    "raw", [b"{", b"[1]", b'"x"', b"\xff", b'{"a": NaN', b"null", b'{"a": NaN, "b": "\\ud800"}']
)
def test_what_is_not_a_json_object_is_a_bad_request(raw):
    with pytest.raises(RequestError) as caught:
        parse_object(raw)
    assert caught.value.hint


def test_an_empty_body_is_an_empty_object():
    assert parse_object(b" \n") == {}


def test_nan_and_infinity_reach_the_field_that_they_are_in():
    reward = validate(FinishRequest, parse_object(b'{"reward": NaN}')).reward
    assert reward is not None
    assert math.isnan(reward)
    assert parse_object(b'{"reward": -Infinity}')["reward"] == -math.inf


def test_a_wrong_field_is_named():
    with pytest.raises(RequestError, match=r"GrantRequest: task_id"):
        validate(GrantRequest, {"client_id": "c", "task_id": 5})


def test_a_misspelt_configuration_key_gets_the_nearest_one_as_hint():
    with pytest.raises(ConfigError, match=r"optimizer.lrr") as caught:
        validate_config(TrainConfig, {"optimizer": {"lrr": 1}})
    assert "'lr'" in caught.value.hint


def test_a_policy_that_does_not_exist_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match=r"batch.policy.*'C1', 'C2', 'C3', 'C4' or 'C5'"):
        validate_config(TrainConfig, {"batch": {"policy": "C6"}})


@pytest.mark.parametrize("policy", ["C4", "C5"])
def test_policies_by_agreement_are_served(policy):
    assert validate_config(TrainConfig, {"batch": {"policy": policy}}).batch.policy == policy
