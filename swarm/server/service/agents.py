"""Keys for the agents of one episode: each opens the episode as that agent, so that calls, rewards and training are told apart."""

from __future__ import annotations

import msgspec

from swarm.protocol.episodes import AgentKey, AgentKeyRequest
from swarm.protocol.errors import EpisodeGone, RequestError, StateError
from swarm.server.service.core import Core
from swarm.server.service.episodes import Episode
from swarm.triggers import Point, hit

MAX_AGENTS = 64
"""Agents of one episode at most."""
KEY_SLACK_S = 3600.0
"""An episode's key outlives its total deadline by this, so that a late caller is told 410 and not 401."""


class Agents:
    """Hands out agents' keys. The first word on an agent stands, and is in the journal before its key is."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def key(self, episode_id: str, request: AgentKeyRequest, base_url: str) -> AgentKey:
        """Return the key of an agent of an open episode. Safe to call twice.

        Raises:
            NotFoundError: No such episode.
            EpisodeGone: It has ended, or its finish was prepared.
            StateError: The agent has a key that says otherwise whether it trains.
            RequestError: The episode has ``MAX_AGENTS`` agents.
        """
        episode = self._open(episode_id)
        self._core.clients.seen(episode.client_id)
        known = episode.details.agents.get(request.agent)
        if known is None:
            self._add(episode, request)
        elif known is not request.train:
            raise StateError(
                f"Agent {request.agent!r} of episode {episode_id!r} was given a key with train={known}.",
                hint="Whether an agent trains is settled by its first key; ask with the same value, or name another agent.",
                episode_id=episode_id,
                agent=request.agent,
            )
        return AgentKey(
            episode_id=episode_id,
            agent=request.agent,
            train=request.train,
            api_key=sign_key(self._core, episode, request.agent),
            base_url=v1_url(base_url),
        )

    def _open(self, episode_id: str) -> Episode:
        episode = self._core.book.get(episode_id)
        if episode is not None and episode.takes_calls:
            return episode
        if episode is None:
            record = self._core.journal.episode(episode_id, calls=False)  # NotFoundError
            why = record.reason or record.dropped or record.state.value
        else:
            why = "its finish was prepared" if episode.prepared else episode.why_over()
        raise EpisodeGone(
            f"Episode {episode_id!r} takes no more agents: {why}.",
            hint="Ask for a new episode.",
            episode_id=episode_id,
        )

    def _add(self, episode: Episode, request: AgentKeyRequest) -> None:
        agents = episode.details.agents
        if len(agents) >= MAX_AGENTS:
            raise RequestError(
                f"Episode {episode.episode_id!r} has {len(agents)} agents.",
                hint=f"An episode takes at most {MAX_AGENTS}; let several play under one name.",
            )
        details = msgspec.structs.replace(
            episode.details, agents={**agents, request.agent: request.train}
        )
        self._core.journal.record_details(episode.episode_id, details)
        hit(Point.AGENT_RECORDED)
        episode.details = details


def sign_key(core: Core, episode: Episode, agent: str = "") -> str:
    """Return the key of an episode, or of one agent in it; the same each time."""
    expires = episode.granted_at + episode.total_deadline_s + KEY_SLACK_S
    return core.keys.sign(episode.episode_id, expires, agent)


def v1_url(base_url: str) -> str:
    """Return the OpenAI-compatible address below the one that the client dialled."""
    root = base_url.rstrip("/")
    return root if root.endswith("/v1") else f"{root}/v1"
