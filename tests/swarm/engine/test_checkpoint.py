import pytest
import torch

from swarm.protocol.config import OptimizerConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine.checkpoint import (
    CheckpointState,
    load_optimizer,
    read_state,
    write_checkpoint,
)
from swarm.server.engine.weights import fingerprint, load_model
from swarm.server.train.update import make_optimizer


def trained(folder):
    """A model after one step on its own logits, and its optimizer."""
    model = load_model(folder)
    optimizer = make_optimizer(model, OptimizerConfig(lr=1e-2))
    model(torch.tensor([[1, 2, 3]])).square().mean().backward()
    optimizer.step()
    return model, optimizer


def test_a_checkpoint_is_a_model_folder_that_also_restores_the_optimizer(small_folder, tmp_path):
    (small_folder / "chat_template.jinja").write_text("hello")
    model, optimizer = trained(small_folder)
    state = CheckpointState(7, 5, fingerprint(model))
    write_checkpoint(tmp_path / "deep" / "ck", model, optimizer, state, small_folder)

    folder = tmp_path / "deep" / "ck"
    assert read_state(folder) == state
    assert (folder / "chat_template.jinja").read_text() == "hello"
    again = load_model(folder)
    assert fingerprint(again) == state.fingerprint

    restored = make_optimizer(again, OptimizerConfig(lr=3e-3))
    load_optimizer(folder, restored)
    assert restored.param_groups[0]["lr"] == 3e-3
    moments = [s["exp_avg"] for s in restored.state_dict()["state"].values()]
    expected = [s["exp_avg"] for s in optimizer.state_dict()["state"].values()]
    assert all(torch.equal(a, b) for a, b in zip(moments, expected, strict=True))


def test_saving_again_replaces_the_folder_and_leaves_nothing_beside_it(small_folder, tmp_path):
    model, optimizer = trained(small_folder)
    home = tmp_path / "checkpoints"
    for step in (1, 2):
        state = CheckpointState(step, step, fingerprint(model))
        write_checkpoint(home / "last", model, optimizer, state, small_folder)
    assert [p.name for p in home.iterdir()] == ["last"]
    assert read_state(home / "last").step == 2


def test_a_folder_without_a_version_file_is_no_checkpoint(small_folder):
    with pytest.raises(ConfigError, match="not a checkpoint"):
        read_state(small_folder)
