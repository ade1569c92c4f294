from __future__ import annotations

from typing import Any

import pytest

APPENDIX_B = """# Original research objective (delivered verbatim to the auto-research agent)

Goal. Find the minimum batch_size that still trains the AIME agent efficiently (batch_size from 1 to 64), and determine whether max_response_length_in_one_turn influences that value.

# Constraints.

• Base code project directory: agentjet_codebase.
• Reference tutorial: agentjet_codebase/tutorial/opencode_build_aime.
• Create new swarm training clients under agentjet_codebase/tutorial/opencode_build_aime/auto_ research/.
• Model: Qwen3-8B.
• Python interpreter: agentjet_codebase/.venv/bin/python.
• Max total_training_steps: 60.
• 8 GPUs per experiment.
• PPO_EPOCH= 1, MINI_BATCH_NUM= 1.
"""
QUESTION = "Find the minimum batch_size that still trains the AIME agent efficiently (batch_size from 1 to 64)"


@pytest.fixture
def goal_b() -> str:
    """The goal of the paper's appendix B, as it stands there."""
    return APPENDIX_B


@pytest.fixture
def reading_b() -> dict[str, Any]:
    """What a careful reader makes of it."""
    front = {
        "question": {
            "kind": "minimum",
            "factor": "batch_size",
            "across": "max_response_length_in_one_turn",
        },
        "task": "aime",
        "model": "Qwen3-8B",
        "factors": {
            "batch_size": {"range": [1, 64], "scale": "log2"},
            "max_response_length_in_one_turn": {"levels": [2048, 8192]},
        },
        "settings": {"steps": 60, "gpus": 8, "ppo_epochs": 1, "minibatches": 1},
        "code": "agentjet_codebase",
        "reference": ["agentjet_codebase/tutorial/opencode_build_aime"],
        "write_to": "agentjet_codebase/tutorial/opencode_build_aime/auto_research",
        "python": "agentjet_codebase/.venv/bin/python",
    }
    quotes = {
        "question": QUESTION,
        "task": "trains the AIME agent",
        "model": "Model: Qwen3-8B",
        "factors.batch_size": "batch_size from 1 to 64",
        "settings.steps": "Max total_training_steps: 60",
        "settings.gpus": "8 GPUs per experiment",
        "settings.ppo_epochs": "PPO_EPOCH= 1",
        "settings.minibatches": "MINI_BATCH_NUM= 1",
        "code": "Base code project directory: agentjet_codebase",
        "reference": "Reference tutorial: agentjet_codebase/tutorial/opencode_build_aime",
        "write_to": "under agentjet_codebase/tutorial/opencode_build_aime/auto_ research/",
        "python": "Python interpreter: agentjet_codebase/.venv/bin/python",
    }
    open_key = "factors.max_response_length_in_one_turn"
    return {
        "front_matter": front,
        "sources": [{"key": k, "quote": v} for k, v in quotes.items()],
        "assumptions": [{"key": open_key, "because": "the goal names it without levels"}],
    }
