import pytest

from swarm.protocol.config import (
    AsyncConfig,
    BatchConfig,
    CheckpointConfig,
    EpisodeLimits,
    EvalGate,
    TrainConfig,
)
from swarm.testing.engines import engine_name


@pytest.fixture
def make_config():
    """Small training configurations; keywords go to the section that has them."""
    sections = {
        "batch": BatchConfig,
        "checkpoint": CheckpointConfig,
        "episode": EpisodeLimits,
        "eval_gate": EvalGate,
        "asynchronous": AsyncConfig,
    }

    def make(**values) -> TrainConfig:
        values = {"tasks": 2, "repeat": 3, "stop_at_step": 2, "drain_deadline_s": 0.2} | values
        body = {"engine": engine_name()}
        for name, section in sections.items():
            own = {key: values.pop(key) for key in list(values) if key in section.model_fields}
            body[name] = section(**own)
        return TrainConfig(**body, **values)

    return make


@pytest.fixture
def asynchronous(make_config):
    def make(**values):
        return make_config(**({"enabled": True, "stop_at_step": 4} | values))

    return make
