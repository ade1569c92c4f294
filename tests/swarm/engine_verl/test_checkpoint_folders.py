import json
from pathlib import Path

import pytest

from swarm.protocol.errors import CheckpointFailed, ConfigError
from swarm.server.engine_verl.checkpoints import (
    CheckpointState,
    read_state,
    shards,
    write_checkpoint,
)
from swarm.server.model_files import resolve_model

TINY = resolve_model("builtin:tiny-calc")
STATE = CheckpointState(3, 2, "abc")


def saved(place):
    """What verl leaves: shards, and an export in a folder below."""
    export = Path(place) / "huggingface"
    export.mkdir(parents=True)
    (export / "model.safetensors").write_bytes(b"new weights")
    (export / "config.json").write_text("{}")
    (Path(place) / "model_world_size_1_rank_0.pt").write_bytes(b"shard")


def test_a_checkpoint_is_a_model_folder_with_shards_beside(tmp_path):
    folder = tmp_path / "step 3"
    write_checkpoint(folder, STATE, TINY, saved)
    assert (folder / "model.safetensors").read_bytes() == b"new weights"
    assert json.loads((folder / "config.json").read_text()) == json.loads(
        (TINY / "config.json").read_text()
    )
    assert (Path(shards(folder)) / "model_world_size_1_rank_0.pt").is_file()
    assert read_state(folder) == STATE
    assert [p.name for p in tmp_path.iterdir()] == ["step 3"]


def test_a_failed_save_leaves_the_checkpoint_of_before(tmp_path):
    folder = tmp_path / "step"
    write_checkpoint(folder, STATE, TINY, saved)

    def full(_place):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointFailed, match="No space"):
        write_checkpoint(folder, CheckpointState(4, 3, "def"), TINY, full)
    assert read_state(folder) == STATE
    assert [p.name for p in tmp_path.iterdir()] == ["step"]


def test_a_checkpoint_of_the_embedded_engine_is_refused(tmp_path):
    (tmp_path / "swarm_state.json").write_text(
        json.dumps({"step": 1, "policy_version": 1, "fingerprint": "x"})
    )
    with pytest.raises(ConfigError, match="not a checkpoint of the engine 'verl'"):
        read_state(tmp_path)
