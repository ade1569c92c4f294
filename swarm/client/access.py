"""A key and an address of an episode, and what an agent does with them: chat, the OpenAI SDK, environment variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swarm.client import calls
from swarm.client.chat import ChatResult, chat_payload, read_chat

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from swarm.client.openai_clients import OpenAIClients
    from swarm.client.transport_async import AsyncTransport
    from swarm.client.transport_sync import SyncTransport


class Access:
    """What is known of a key without asking the server."""

    def __init__(self, api_key: str, base_url: str, chat_timeout_s: float) -> None:
        """Keep where calls go; ``chat_timeout_s`` bounds each of them, held time included."""
        self._api_key, self._base_url = api_key, base_url
        self._chat_timeout_s = chat_timeout_s

    @property
    def base_url(self) -> str:
        """OpenAI-compatible address, ``.../v1``."""
        return self._base_url

    @property
    def api_key(self) -> str:
        """Key that opens this episode only (as this agent, when it is an agent's)."""
        return self._api_key

    def environ(self) -> dict[str, str]:
        """Environment variables that point a program here, whether it speaks OpenAI's dialects or Anthropic's."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.base_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": self.api_key,
        }


class AsyncAccess(Access):
    """The asynchronous ways to use a key."""

    def __init__(
        self,
        api_key: str,
        base_url: str,
        chat_timeout_s: float,
        transport: AsyncTransport,
        sdks: OpenAIClients,
    ) -> None:
        """Share the client's connections."""
        super().__init__(api_key, base_url, chat_timeout_s)
        self._transport, self._sdks = transport, sdks

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatResult:
        """Ask the model for one answer (``/v1/chat/completions`` on the light path); None values are left out.

        Raises:
            EpisodeGone: the episode ended, passed a deadline, or its finish was prepared.
            RequestError: the request can never succeed (a parameter, the context length, too many calls).
            ServerUnreachable: no answer within the client's ``chat_timeout_s``.
        """
        payload = chat_payload(messages, tools, sampling)
        call = calls.chat(self.api_key, payload, self._chat_timeout_s)
        return read_chat(await self._transport.send(call))

    def async_openai(self) -> AsyncOpenAI:
        """An OpenAI SDK client with this key; it shares the client's connections, so do not close it."""
        return self._sdks.asynchronous(self.base_url, self.api_key)


class SyncAccess(Access):
    """The synchronous ways to use a key; from any thread."""

    def __init__(
        self,
        api_key: str,
        base_url: str,
        chat_timeout_s: float,
        transport: SyncTransport,
        sdks: OpenAIClients,
    ) -> None:
        """Share the client's connections."""
        super().__init__(api_key, base_url, chat_timeout_s)
        self._transport, self._sdks = transport, sdks

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatResult:
        """Ask the model for one answer; as ``AsyncAccess.chat``."""
        payload = chat_payload(messages, tools, sampling)
        call = calls.chat(self.api_key, payload, self._chat_timeout_s)
        return read_chat(self._transport.send(call))

    def openai(self) -> OpenAI:
        """An OpenAI SDK client with this key; it shares the client's connections, so do not close it."""
        return self._sdks.sync(self.base_url, self.api_key)


class _Named:
    """Which agent of which episode a key is for."""

    def __init__(self, episode_id: str, agent: str, *, train: bool) -> None:
        """Keep the names."""
        self.episode_id, self.agent, self.train = episode_id, agent, train

    def __repr__(self) -> str:
        """The agent without its key."""
        what = "trained" if self.train else "not trained"
        return f"<{type(self).__name__} {self.agent!r} of {self.episode_id}, {what}>"


class AsyncAgentKey(_Named, AsyncAccess):
    """The key of one agent of an ``AsyncEpisode``: calls with it are that agent's."""

    def __init__(
        self, episode_id: str, agent: str, *, train: bool, access: tuple[Any, ...]
    ) -> None:
        """Made by ``AsyncEpisode.key``."""
        _Named.__init__(self, episode_id, agent, train=train)
        AsyncAccess.__init__(self, *access)


class AgentKey(_Named, SyncAccess):
    """The key of one agent of an ``Episode``: calls with it are that agent's."""

    def __init__(
        self, episode_id: str, agent: str, *, train: bool, access: tuple[Any, ...]
    ) -> None:
        """Made by ``Episode.key``."""
        _Named.__init__(self, episode_id, agent, train=train)
        SyncAccess.__init__(self, *access)
