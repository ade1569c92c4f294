"""A second client with the same settings and the other colour: sync scripts run an async core, async cores run sync agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarm.client.async_client import AsyncSwarmClient

if TYPE_CHECKING:
    from swarm.client.client import SwarmClient


def async_twin(client: SwarmClient | AsyncSwarmClient) -> AsyncSwarmClient:
    """An async client with the same address, token and id; the caller closes it."""
    s = client.settings
    return AsyncSwarmClient(
        s.url, s.token, s.client_id, timeout_s=s.timeout_s, chat_timeout_s=s.chat_timeout_s
    )


def sync_twin(client: AsyncSwarmClient) -> SwarmClient:
    """A synchronous client with the same address, token and id, for agents in threads; the caller closes it."""
    from swarm.client.client import SwarmClient  # noqa: PLC0415 - urllib3 only where threads play

    s = client.settings
    return SwarmClient(
        s.url, s.token, s.client_id, timeout_s=s.timeout_s, chat_timeout_s=s.chat_timeout_s
    )
