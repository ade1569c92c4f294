"""The client half of swarm: take episodes, run agents, report rewards. No torch, no server code.

Names load on first use (PEP 562), so that ``import swarm.client`` costs milliseconds and a synchronous user never pays
for aiohttp, nor an asynchronous one for urllib3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarm.client.async_client import AsyncSwarmClient
    from swarm.client.chat import ChatResult
    from swarm.client.client import SwarmClient
    from swarm.client.episode import AsyncEpisode, Episode
    from swarm.client.errors import ClientUsageError, TooManyFailures, TrainingComplete, WaitTimeout
    from swarm.client.evals import EvalRecord, EvalReport, run_eval, run_eval_async
    from swarm.client.rollouts import RunSummary, run_episodes, run_episodes_async
    from swarm.client.tasks import Task, TaskSet, as_task_set, read_jsonl

_HOMES = {
    "AsyncSwarmClient": "async_client",
    "SwarmClient": "client",
    "ChatResult": "chat",
    "AsyncEpisode": "episode",
    "Episode": "episode",
    "ClientUsageError": "errors",
    "TooManyFailures": "errors",
    "TrainingComplete": "errors",
    "WaitTimeout": "errors",
    "EvalRecord": "evals",
    "EvalReport": "evals",
    "run_eval": "evals",
    "run_eval_async": "evals",
    "RunSummary": "rollouts",
    "run_episodes": "rollouts",
    "run_episodes_async": "rollouts",
    "Task": "tasks",
    "TaskSet": "tasks",
    "as_task_set": "tasks",
    "read_jsonl": "tasks",
}

__all__ = [
    "AsyncEpisode",
    "AsyncSwarmClient",
    "ChatResult",
    "ClientUsageError",
    "Episode",
    "EvalRecord",
    "EvalReport",
    "RunSummary",
    "SwarmClient",
    "Task",
    "TaskSet",
    "TooManyFailures",
    "TrainingComplete",
    "WaitTimeout",
    "as_task_set",
    "read_jsonl",
    "run_episodes",
    "run_episodes_async",
    "run_eval",
    "run_eval_async",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'swarm.client' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"swarm.client.{home}"), name)
