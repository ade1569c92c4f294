"""Goals whose runs use the engine verl: their limits, and the GPUs that are reserved for them."""

from pathlib import Path

import pytest

from a3r.leader.goal_check import check_spec
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.training import cell_settings, train_config

PATH = Path("campaigns/x/goal.md")


def goal(text, *settings):
    lines = "".join(f"\n  {setting}" for setting in settings)
    return parse_goal(text.replace("\nsettings:", f"\nsettings:{lines}", 1), PATH)


def warned(spec):
    return [w for w in check_spec(spec, PATH).warnings if "GPU" in w or "gpus" in w]


def test_a_run_with_the_engine_verl_is_given_hours_unless_the_goal_says_otherwise(goal_text):
    cell = {"train_batch_size": 8, "max_response_tokens": 16}
    plain = cell_settings(goal(goal_text), cell).limits
    limits = cell_settings(goal(goal_text, "engine: verl"), cell).limits
    assert (plain.first_step_deadline_s, limits.first_step_deadline_s) == (180, 3600)
    spec = goal(goal_text, "engine: verl", "limits.first_step_deadline_s: 60")
    assert cell_settings(spec, cell).limits.first_step_deadline_s == 60
    assert cell_settings(spec, cell).limits.stall_deadline_s == 3600


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["engine: verl", "verl.gpus_per_node: 8", "gpus: 8"], None),
        (["engine: verl", "verl.ray_address: auto", "verl.gpus_per_node: 8"], None),
        (["gpus: 1"], None),
        (["engine: verl"], "takes 1 GPU(s)"),
        (["engine: verl", "verl.gpus_per_node: 8", "gpus: 4"], "write `gpus: 8`"),
        (["engine: verl", "verl.ray_address: auto", "gpus: 8"], "leave `gpus` out"),
    ],
)
def test_gpus_that_do_not_fit_the_engine_are_told_once(goal_text, settings, told):
    found = warned(goal(goal_text, *settings))
    assert len(found) == (told is not None)
    assert told is None or told in found[0]


def test_keys_of_verl_reach_the_training_configuration_as_they_are(goal_text, tmp_path):
    options = "verl.options: {actor_rollout_ref.rollout.enforce_eager: true}"
    spec = goal(goal_text, "engine: verl", options, "verl.gpus_per_node: 2")
    config = train_config(spec, {"train_batch_size": 8, "max_response_tokens": 16}, "run", tmp_path)
    assert (config.engine, config.verl.gpus_per_node) == ("verl", 2)
    assert config.verl.options == {"actor_rollout_ref.rollout.enforce_eager": True}


def test_a_server_may_run_in_another_python_than_its_worker(goal_text):
    settings = [
        "engine: verl",
        "server.environment.kind: python",
        "server.environment.python: /opt/verl/bin/python",
        "server.environment.variables: {NCCL_SOCKET_IFNAME: ib0}",
    ]
    cell = cell_settings(
        goal(goal_text, *settings), {"train_batch_size": 8, "max_response_tokens": 16}
    )
    assert (cell.server_environment.kind, cell.server_environment.python) == (
        "python",
        "/opt/verl/bin/python",
    )
    assert cell.server_environment.variables == {"NCCL_SOCKET_IFNAME": "ib0"}
    assert cell.environment.kind == "inherit"
