import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.dependencies import REQUIRED, ROLLOUT, problems, require

GOOD = {one.package: one.low for one in (*REQUIRED, *ROLLOUT.values())}


def test_the_lowest_tested_versions_are_enough():
    assert problems("vllm", GOOD.get) == []
    require("sglang", GOOD.get)


@pytest.mark.parametrize("version", ["0.24.1+cpu", "0.31.0rc1", "0.24"])
def test_what_follows_the_numbers_of_a_version_does_not_count(version):
    assert problems("vllm", {**GOOD, "vllm": version}.get) == []


def test_everything_that_is_missing_or_wrong_is_named_at_once():
    found = {**GOOD, "vllm": "0.32.0"}
    del found["ray"]
    with pytest.raises(ConfigError) as refused:
        require("vllm", found.get)
    assert "ray is missing" in refused.value.message
    assert "vllm is 0.32.0 (tested: >= 0.24, < 0.32" in refused.value.message
    assert "make setup-verl" in refused.value.hint


def test_the_rollout_engine_that_is_not_asked_for_may_be_missing():
    found = dict(GOOD)
    del found["sglang"]
    assert problems("vllm", found.get) == []
