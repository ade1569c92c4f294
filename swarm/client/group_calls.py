"""The calls of an episode that takes several servers or agents: reserve and confirm, prepare and commit, a key for each role."""

from __future__ import annotations

import orjson
from pydantic import BaseModel

from swarm.client.calls import Call, finish_body, reader_of
from swarm.protocol.episodes import (
    AgentKey,
    AgentKeyRequest,
    FinishReply,
    FinishRequest,
    Grant,
    PrepareReply,
)

LEAST_COMMIT_S = 5.0
"""A commit is tried at least this long: a promise may have ended because the episode did, and the answer says how."""


def confirm(episode_id: str) -> Call[Grant]:
    """``POST /swarm/episodes/{id}/confirm``: a reservation becomes an episode. Idempotent."""
    return Call("POST", f"/swarm/episodes/{episode_id}/confirm", reader_of(Grant), b"")


def agent_key(episode_id: str, agent: str, *, train: bool) -> Call[AgentKey]:
    """``POST /swarm/episodes/{id}/agents``. Idempotent."""
    body = _dump(AgentKeyRequest(agent=agent, train=train))
    return Call("POST", f"/swarm/episodes/{episode_id}/agents", reader_of(AgentKey), body)


def prepare(episode_id: str, request: FinishRequest) -> Call[PrepareReply]:
    """``POST /swarm/episodes/{id}/prepare``: the first half of a finish. Idempotent."""
    path = f"/swarm/episodes/{episode_id}/prepare"
    return Call("POST", path, reader_of(PrepareReply), finish_body(request))


def commit(episode_id: str, within_s: float) -> Call[FinishReply]:
    """``POST /swarm/episodes/{id}/commit``: the second half, tried until the promise ends. Idempotent."""
    path = f"/swarm/episodes/{episode_id}/commit"
    deadline_s = max(LEAST_COMMIT_S, within_s)
    return Call("POST", path, reader_of(FinishReply), b"", deadline_s=deadline_s)


def _dump(message: BaseModel) -> bytes:
    return orjson.dumps(message.model_dump(mode="json"))
