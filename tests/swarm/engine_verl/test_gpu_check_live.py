"""The configurations for GPUs are ones that the installed verl takes: of each check, and of the guide. Boots nothing."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from swarm.protocol.config import TrainConfig
from swarm.server.engine_verl.verl_config import compose
from swarm.testing.gpu_check.cases import CASES
from swarm.testing.gpu_check.probe import config_of

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]

GUIDE = (Path(__file__).parents[3] / "docs/guides/gpu-cluster.md").read_text("utf-8")


def composed(config, tmp_path):
    return compose(config, folder=str(tmp_path), max_len=512, device="cuda")


@pytest.mark.parametrize("case", [c for c in CASES if c.engine == "verl"], ids=lambda c: c.name)
def test_verl_takes_the_configuration_of_a_check(case, tmp_path):
    found = composed(config_of(case, "builtin:tiny-calc"), tmp_path)
    assert found.trainer.n_gpus_per_node == case.verl.get("gpus_per_node", 1)


def test_verl_takes_the_configuration_of_the_guide(tmp_path):
    texts = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.S | re.M)
    (body,) = [found for text in texts if "engine" in (found := YAML(typ="safe").load(text))]
    found = composed(TrainConfig.model_validate(body), tmp_path)
    assert found.actor_rollout_ref.rollout.tensor_model_parallel_size == 2


def test_verl_takes_the_settings_of_the_guides_campaign(tmp_path):
    (goal,) = re.findall(r"^```markdown\n---\n(.*?)^---$", GUIDE, re.S | re.M)
    settings = YAML(typ="safe").load(goal)["settings"]
    values = {"engine": "verl", "verl": {"options": settings["verl.options"]}}
    found = composed(TrainConfig.model_validate(values), tmp_path)
    assert found.actor_rollout_ref.actor.fsdp_config.param_offload is True
