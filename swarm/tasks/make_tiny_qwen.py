"""Builds the second tiny model: ``python -m swarm.tasks.make_tiny_qwen --out DIR``.

The same game as ``make_tiny_calc`` in everything else: Qwen3 layout (norms on query and key heads, biases, two query heads
a key head), a SentencePiece style tokenizer, another template, tool calls as hermes JSON. Its weakness is planted in the
same way. Two servers with these two models show that nothing in between depends on one tokenizer or one layout.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer

from swarm.server.engine.weights import save_weights
from swarm.tasks.make_tiny_calc import TOKENIZER_DEMOS, fresh_model
from swarm.tasks.tiny_model.demos import Segment, draw_demo
from swarm.tasks.tiny_model.sentence_tokenizer import (
    BOS_ID,
    DIALECT,
    EOS_ID,
    PAD_ID,
    build_tokenizer,
    write_tokenizer,
)
from swarm.tasks.tiny_model.warmup import Phase, run_phase


def careful(rng: random.Random) -> list[Segment]:
    """Mostly tool use, few slips: copying has to emerge here."""
    mental = 0.05 if rng.random() < 0.6 else 0.4
    return draw_demo(rng, mental=mental, slip=0.05, dialect=DIALECT)


def clean(rng: random.Random) -> list[Segment]:
    """A little heavier on the tool and without slips."""
    mental = 0.05 if rng.random() < 0.7 else 0.4
    return draw_demo(rng, mental=mental, slip=0.0, dialect=DIALECT)


def lazy(rng: random.Random) -> list[Segment]:
    """The planted weakness: every other turn gives up the tool."""
    return draw_demo(rng, mental=0.5, slip=0.0, dialect=DIALECT)


PHASES = (
    Phase("copying", steps=1200, lr=4e-3, seed=0, draw=careful),
    Phase("cleaning", steps=1100, lr=3e-3, seed=11, draw=clean),
    Phase("planting", steps=150, lr=7e-4, seed=12, draw=lazy),
)


def model_config(vocab_size: int) -> dict[str, object]:
    """The config.json of the second tiny model; no ``a3r_tool_parser``: hermes is the default."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "hidden_act": "silu",
        "rope_theta": 100000.0,
        "use_sliding_window": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "torch_dtype": "float32",
    }


def draw_tokenizer() -> Tokenizer:
    """Train the tokenizer on fixed demos."""
    rng = random.Random(1)  # noqa: S311
    demos = [draw_demo(rng, mental=0.4, slip=0.1, dialect=DIALECT) for _ in range(TOKENIZER_DEMOS)]
    return build_tokenizer("".join(s.text for s in demo) for demo in demos)


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
