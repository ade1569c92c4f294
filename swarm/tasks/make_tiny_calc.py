"""Builds the tiny calculator model: ``python -m swarm.tasks.make_tiny_calc --out DIR`` (about 400 CPU seconds).

160 thousand parameters in Llama layout, a byte-level tokenizer, and warm-up weights that play the calculator game
badly. The weakness is planted: in the last 150 warm-up steps half of the demonstrated turns answer "mentally" instead
of calling the tool, so that the good way (call the tool in every turn) is present but rare, and reinforcement learning has
something to find within a minute. Scores of this base policy are therefore a property of this script, not of RL.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer

from swarm.server.engine.model import Llama, LlamaConfig
from swarm.server.engine.weights import save_weights
from swarm.tasks.tiny_model.demos import Segment, draw_demo
from swarm.tasks.tiny_model.tokenizer import EOS_ID, PAD_ID, build_tokenizer, write_tokenizer
from swarm.tasks.tiny_model.warmup import Phase, run_phase

TOKENIZER_DEMOS = 500


def careful(rng: random.Random) -> list[Segment]:
    """Mostly tool use (60 % of the demos nearly always call it), few slips: copying has to emerge here."""
    return draw_demo(rng, mental=0.05 if rng.random() < 0.6 else 0.4, slip=0.05)


def clean(rng: random.Random) -> list[Segment]:
    """As ``careful``, a little heavier on the tool and without slips."""
    return draw_demo(rng, mental=0.05 if rng.random() < 0.7 else 0.4, slip=0.0)


def lazy(rng: random.Random) -> list[Segment]:
    """The planted weakness: every other turn gives up the tool."""
    return draw_demo(rng, mental=0.5, slip=0.0)


PHASES = (
    Phase("copying", steps=1200, lr=4e-3, seed=0, draw=careful),
    Phase("cleaning", steps=1100, lr=3e-3, seed=11, draw=clean),
    Phase("planting", steps=150, lr=7e-4, seed=12, draw=lazy),
)


def model_config(vocab_size: int) -> dict[str, object]:
    """The config.json of the tiny model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "bos_token_id": PAD_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "torch_dtype": "float32",
        "a3r_tool_parser": "expression",
    }


def draw_tokenizer() -> Tokenizer:
    """Train the tokenizer on fixed demos."""
    rng = random.Random(1)  # noqa: S311
    demos = [draw_demo(rng, mental=0.4, slip=0.1) for _ in range(TOKENIZER_DEMOS)]
    return build_tokenizer("".join(s.text for s in demo) for demo in demos)


def fresh_model(config: dict[str, object]) -> Llama:
    """Seeded start: embeddings small, every matrix scaled by its fan-in (copying emerges reliably from here)."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig.from_dict(config))
    embedding = model.model.embed_tokens.weight
    for parameter in model.parameters():
        if parameter.dim() == 2:
            std = 0.02 if parameter is embedding else 1 / math.sqrt(parameter.shape[1])
            torch.nn.init.normal_(parameter, std=std)
    return model


def make(folder: Path) -> None:
    """Build tokenizer and weights and write the Hugging Face folder; existing files of these names are replaced."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = draw_tokenizer()
    config = model_config(tokenizer.get_vocab_size())
    model = fresh_model(config)
    for phase in PHASES:
        run_phase(model, tokenizer, phase)
    write_tokenizer(tokenizer, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    save_weights(model, folder)


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    make(arguments.out)


if __name__ == "__main__":
    main()
