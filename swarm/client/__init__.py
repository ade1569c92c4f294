"""The client half of swarm: take episodes, run agents, report rewards. No torch, no server code.

Names load on first use (PEP 562), so that ``import swarm.client`` costs milliseconds and a synchronous user never pays
for aiohttp, nor an asynchronous one for urllib3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarm.client.access import AgentKey, AsyncAgentKey
    from swarm.client.async_client import AsyncSwarmClient
    from swarm.client.async_group import AsyncSwarmGroup
    from swarm.client.chat import ChatResult
    from swarm.client.client import SwarmClient
    from swarm.client.episode import AsyncEpisode, Episode
    from swarm.client.errors import (
        ClientUsageError,
        ExternalModelDown,
        TooManyFailures,
        TrainingComplete,
        WaitTimeout,
    )
    from swarm.client.evals import EvalRecord, EvalReport, run_eval, run_eval_async
    from swarm.client.external import ExternalModel, Price
    from swarm.client.group import SwarmGroup
    from swarm.client.group_episode import AsyncGroupEpisode, GroupEpisode
    from swarm.client.group_roles import GroupRole
    from swarm.client.readers import read_dataset, read_documents, read_jsonl, stream_jsonl
    from swarm.client.rollouts import RunSummary, run_episodes, run_episodes_async
    from swarm.client.streams import TaskStream
    from swarm.client.tasks import ComputedTasks, Task, TaskSet, as_task_set

_HOMES = {
    "AgentKey": "access",
    "AsyncAgentKey": "access",
    "AsyncSwarmClient": "async_client",
    "AsyncSwarmGroup": "async_group",
    "SwarmGroup": "group",
    "AsyncGroupEpisode": "group_episode",
    "GroupEpisode": "group_episode",
    "GroupRole": "group_roles",
    "ExternalModel": "external",
    "Price": "external",
    "ExternalModelDown": "errors",
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
    "ComputedTasks": "tasks",
    "TaskStream": "streams",
    "read_dataset": "readers",
    "read_documents": "readers",
    "read_jsonl": "readers",
    "stream_jsonl": "readers",
}

__all__ = [
    "AgentKey",
    "AsyncAgentKey",
    "AsyncEpisode",
    "AsyncGroupEpisode",
    "AsyncSwarmClient",
    "AsyncSwarmGroup",
    "ChatResult",
    "ClientUsageError",
    "ComputedTasks",
    "Episode",
    "EvalRecord",
    "EvalReport",
    "ExternalModel",
    "ExternalModelDown",
    "GroupEpisode",
    "GroupRole",
    "Price",
    "RunSummary",
    "SwarmClient",
    "SwarmGroup",
    "Task",
    "TaskSet",
    "TaskStream",
    "TooManyFailures",
    "TrainingComplete",
    "WaitTimeout",
    "as_task_set",
    "read_dataset",
    "read_documents",
    "read_jsonl",
    "run_episodes",
    "run_episodes_async",
    "run_eval",
    "run_eval_async",
    "stream_jsonl",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'swarm.client' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"swarm.client.{home}"), name)
