"""The name of base weights as the engine verl gives it: the same as that of its own checksum, whatever type the files have."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from a3r.leader.verl_weights import verl_fingerprint
from swarm.protocol.config import TrainConfig
from swarm.server.engine_verl.weights import checksum
from swarm.server.model_files import resolve_model

VERL = TrainConfig(engine="verl")
SEEN = "38079b730385a61a"
"""What the engine itself said of the tiny model, served by verl and vLLM."""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(resolve_model("builtin:tiny-calc"), folder)
    return folder


def of_the_engine(folder):
    """By torch, as the engine does: in float32, tied weights under both their names."""
    named = {n: t.float() for n, t in load_file(folder / "model.safetensors").items()}
    return checksum({**named, "lm_head.weight": named["model.embed_tokens.weight"]}.items())


def test_the_tiny_model_has_the_name_that_the_engine_gave_it(model):
    assert verl_fingerprint(model, VERL) == of_the_engine(model) == SEEN


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_weights_in_sixteen_bits_are_named_as_they_are_held(model, kind):
    named = load_file(model / "model.safetensors")
    save_file({n: t.to(kind) for n, t in named.items()}, model / "model.safetensors")
    assert verl_fingerprint(model, VERL) == of_the_engine(model) != SEEN


def test_a_tensor_is_read_in_pieces(model):
    assert verl_fingerprint(model, VERL, piece=1000) == SEEN


@pytest.mark.parametrize(
    "verl",
    [
        {"strategy": "megatron"},
        {"options": {"actor_rollout_ref.actor.fsdp_config.model_dtype": "bfloat16"}},
    ],
)
def test_what_only_the_engine_can_say_is_left_open(model, verl):
    assert verl_fingerprint(model, TrainConfig(engine="verl", verl=verl)) == ""


def test_a_layout_that_is_not_known_is_left_open(model):
    body = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(body | {"architectures": ["OtherForCausalLM"]}))
    assert verl_fingerprint(model, VERL) == ""
