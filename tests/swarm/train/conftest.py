"""A small random model and rows over its vocabulary."""

import random

import pytest
import torch

from swarm.protocol.config import AlgorithmConfig, OptimizerConfig
from swarm.server.engine.model import Llama, LlamaConfig
from swarm.server.ports import Span, TrainRow
from swarm.server.train.update import Updater, make_optimizer

torch.set_num_threads(1)


@pytest.fixture
def model():
    torch.manual_seed(5)
    config = {
        "model_type": "llama",
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
    }
    return Llama(LlamaConfig.from_dict(config))


@pytest.fixture
def updater(model):
    def build(*, token_budget=8192, lr=1e-3, grad_clip=1.0, reference=None, **algorithm) -> Updater:
        optimizer = make_optimizer(model, OptimizerConfig(lr=lr))
        return Updater(
            model,
            optimizer,
            AlgorithmConfig(**algorithm),
            grad_clip=grad_clip,
            reference=reference,
            token_budget=token_budget,
        )

    return build


@pytest.fixture
def rows():
    """Twelve rows of four groups, several spans and temperatures, on weights that sum to 1 over the trained tokens."""
    rng = random.Random(2)
    made = []
    for group in range(4):
        for repeat in range(3):
            length = rng.randint(8, 40)
            middle = rng.randint(3, length - 3)
            spans = [Span(2, middle, 1.0), Span(middle + 1, length, rng.choice((1.0, 0.7)))]
            count = sum(s.end - s.start for s in spans)
            made.append(
                TrainRow(
                    key=f"s0.g{group}/{repeat}/0",
                    episode_id=f"e{group}.{repeat}",
                    ids=[rng.randrange(40) for _ in range(length)],
                    spans=spans,
                    logprobs=[-3.0 - rng.random() for _ in range(count)],
                    advantage=rng.uniform(-1, 1),
                    weight=0.0,
                )
            )
    total = sum(len(row.logprobs) for row in made)
    for row in made:
        row.weight = 1 / total
    return made
