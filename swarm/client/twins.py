"""A second client with the same settings and the other colour: sync scripts run an async core, async cores run sync agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from swarm.client.async_client import AsyncSwarmClient
from swarm.client.group_base import GroupBase
from swarm.client.group_source import AsyncGroupSource

if TYPE_CHECKING:
    from swarm.client.async_group import AsyncSwarmGroup
    from swarm.client.client import SwarmClient
    from swarm.client.group import SwarmGroup


@overload
def async_twin(client: SwarmClient | AsyncSwarmClient) -> AsyncSwarmClient: ...
@overload
def async_twin(client: SwarmGroup | AsyncSwarmGroup) -> AsyncSwarmGroup: ...
def async_twin(
    client: SwarmClient | AsyncSwarmClient | SwarmGroup | AsyncSwarmGroup,
) -> AsyncSwarmClient | AsyncSwarmGroup:
    """An async client (or group) of the same address, token, id and instance; the caller closes it."""
    if not isinstance(client, GroupBase):
        return AsyncSwarmClient.of(client.settings)
    from swarm.client.async_group import AsyncSwarmGroup  # noqa: PLC0415 - only where groups play

    twins = {name: AsyncSwarmClient.of(one.settings) for name, one in client.servers.items()}
    twin = AsyncSwarmGroup(twins, secrets=client.secrets, **client.options)
    twin.book = client.book
    return twin


def sync_twin(
    client: SwarmClient | AsyncSwarmClient | AsyncGroupSource,
) -> SwarmClient | SwarmGroup:
    """A synchronous client (or group), as above, for agents in threads; the caller closes it."""
    from swarm.client.client import SwarmClient  # noqa: PLC0415 - urllib3 only where threads play

    if not isinstance(client, AsyncGroupSource):
        return SwarmClient.of(client.settings)
    from swarm.client.group import SwarmGroup  # noqa: PLC0415 - only where groups play

    group = client.group
    twins = {name: SwarmClient.of(one.settings) for name, one in group.servers.items()}
    twin = SwarmGroup(twins, secrets=group.secrets, **group.options)
    twin.book = group.book
    return twin
