"""A blueprint with every section filled in."""

import pytest

from a3r.blueprints.model import Blueprint, ClientSpec, EvaluatorSpec, Limits, ServerSpec
from swarm.protocol.config import OptimizerConfig, TrainConfig


@pytest.fixture
def blueprint() -> Blueprint:
    return Blueprint(
        name="s1-b16-cap10",
        purpose="See whether 16 groups a step still train.\n\nTwo seeds.",
        hypothesis="It trains: the gain is above 0.05.",
        predicted_outcome="yes",
        factors={"train_batch_size": 16, "lr": 1e-3, "word": "no", "text": "1e-3", "on": None},
        fixed={"nested": {"list": [1, 1.0, "1", True, None]}},
        servers=(ServerSpec(train=TrainConfig(optimizer=OptimizerConfig(lr=1e-5))),),
        clients=(ClientSpec(template="calculator", tree_hash="t" * 64, arguments={"n": 4}),),
        evaluator=EvaluatorSpec(task="calculator", items=300, item_set_hash="i", source_hash="s"),
        seeds=(1, 2),
        limits=Limits(max_time_s=600.0),
        secret_names=("HF_TOKEN",),
        notes="# not a heading\n---\n'quotes' and \"quotes\": | pipes",
    )
