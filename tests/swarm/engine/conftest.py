"""The shipped tiny model and small random ones, on one thread."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from swarm.protocol.config import TrainConfig
from swarm.server.engine.model import Llama, LlamaConfig
from swarm.server.engine.weights import load_model, save_weights
from swarm.server.model_files import resolve_model
from swarm.server.ports import GenerateRequest

torch.set_num_threads(1)

TINY = resolve_model("builtin:tiny-calc")
IM_END = 2


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer.from_file(str(TINY / "tokenizer.json"))


@pytest.fixture
def tiny_model():
    return load_model(TINY)


@pytest.fixture
def ask(tokenizer):
    """Build a request for one calculator question."""

    def build(question: str, **changes) -> GenerateRequest:
        text = (
            "<|im_start|>system\nUse the tool to add two numbers.<|im_end|>\n"
            f"<|im_start|>user\nCompute {question}.<|im_end|>\n<|im_start|>assistant\n"
        )
        values = {
            "request_id": question,
            "prompt_ids": tokenizer.encode(text, add_special_tokens=False).ids,
            "max_tokens": 24,
            "temperature": 1.0,
            "stop_token_ids": [IM_END],
            "noise_key": f"noise of {question}",
            "affinity": f"episode of {question}",
        }
        return GenerateRequest(**(values | changes))

    return build


@pytest.fixture
def small_config() -> dict:
    """A config.json with grouped queries, an own head size, an untied head and another rope base."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "rope_theta": 5000.0,
    }


@pytest.fixture
def small_folder(tmp_path: Path, small_config: dict) -> Path:
    """A model folder with seeded random weights (no tokenizer)."""
    folder = tmp_path / "small-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(small_config), "utf-8")
    torch.manual_seed(3)
    save_weights(Llama(LlamaConfig.from_dict(small_config)), folder)
    return folder


@pytest.fixture
def tiny_config() -> TrainConfig:
    return TrainConfig.model_validate({"optimizer": {"lr": 1e-3}})
