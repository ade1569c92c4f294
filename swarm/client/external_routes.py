"""Ways to an external model for one episode: the light chat path and the OpenAI SDK, both booked, both tried again.

One ``ExternalServer`` a role holds the connections; an episode gets a route with a book of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from swarm.client.calls import Call
from swarm.client.chat import ChatResult, chat_payload, read_chat
from swarm.client.external import Book, ExternalModel, read_failure, read_usage
from swarm.client.external_sdk import BookedSDK
from swarm.client.retry import Backoff
from swarm.client.settings import ClientSettings
from swarm.protocol.errors import SwarmError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from swarm.client.transport_async import AsyncTransport
    from swarm.client.transport_sync import SyncTransport

CHAT_PATH = "/chat/completions"


def chat_call(
    model: ExternalModel,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    sampling: dict[str, Any],
    key: str,
) -> Call[dict[str, Any]]:
    """``POST <base_url>/chat/completions`` with the model's own key; one try of it."""
    payload = chat_payload(messages, tools, sampling) | {"model": model.model}
    path = ("/v1" if model.base_url.rstrip("/").endswith("/v1") else "") + CHAT_PATH
    body = orjson.dumps(payload)
    timeout_s = model.timeout_s
    return Call("POST", path, orjson.loads, body, deadline_s=timeout_s, repeatable=False, key=key)


class _Route:
    """What an agent may know of an external model."""

    def __init__(
        self, role: str, model: ExternalModel, key: str, book: Book, sdk: BookedSDK
    ) -> None:
        self.role, self.model = role, model
        self._key, self._book, self._sdk = key, book, sdk

    @property
    def base_url(self) -> str:
        """OpenAI-compatible address."""
        return self.model.base_url

    @property
    def api_key(self) -> str:
        """The key of the model's secret."""
        return self._key

    def environ(self) -> dict[str, str]:
        """Environment variables that point an OpenAI-speaking program at this model. What it uses is not booked."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self._key,
        }

    def _read(self, body: dict[str, Any]) -> ChatResult:
        self._book.add(self.role, read_usage(self.model, body))
        return read_chat(body)

    def _delay_s(self, error: SwarmError, backoff: Backoff) -> float:
        """Seconds until the next try; raises what the failure means when there is none."""
        failure, again = read_failure(self.role, self.model, error)
        delay = backoff.next_delay() if again else None
        if delay is None:
            self._book.went_down(self.role, failure.message)
            raise failure from error
        return delay

    def __repr__(self) -> str:
        """The route without its key."""
        return f"<{type(self).__name__} {self.role} {self.model.model} at {self.model.base_url}>"


class AsyncExternalRoute(_Route):
    """An external model in an ``AsyncGroupEpisode``."""

    def __init__(
        self,
        role: str,
        model: ExternalModel,
        key: str,
        book: Book,
        sdk: BookedSDK,
        transport: AsyncTransport,
    ) -> None:
        """Made by ``AsyncExternalServer.route``."""
        super().__init__(role, model, key, book, sdk)
        self._transport = transport

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatResult:
        """Ask for one answer; None values are left out. Tried again, with growing pauses, for ``patience_s``.

        Raises:
            ExternalModelDown: no answer within the model's patience.
            AuthError: the key is refused.
            RequestError: the request can never succeed.
        """
        call = chat_call(self.model, messages, tools, sampling, self._key)
        backoff = Backoff(self.model.patience_s)
        while True:
            try:
                one_try = call.within(min(self.model.timeout_s, max(backoff.left_s, 0.001)))
                return self._read(await self._transport.send(one_try))
            except SwarmError as error:
                delay = self._delay_s(error, backoff)
            await asyncio.sleep(delay)

    def async_openai(self) -> AsyncOpenAI:
        """An OpenAI SDK client; it shares the group's connections, so do not close it."""
        return self._sdk.asynchronous(self._key, self._book)


class ExternalRoute(_Route):
    """An external model in a ``GroupEpisode``; may be used from any thread."""

    def __init__(
        self,
        role: str,
        model: ExternalModel,
        key: str,
        book: Book,
        sdk: BookedSDK,
        transport: SyncTransport,
    ) -> None:
        """Made by ``ExternalServer.route``."""
        super().__init__(role, model, key, book, sdk)
        self._transport = transport

    def chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatResult:
        """Ask for one answer; as ``AsyncExternalRoute.chat``."""
        call = chat_call(self.model, messages, tools, sampling, self._key)
        backoff = Backoff(self.model.patience_s)
        while True:
            try:
                one_try = call.within(min(self.model.timeout_s, max(backoff.left_s, 0.001)))
                return self._read(self._transport.send(one_try))
            except SwarmError as error:
                delay = self._delay_s(error, backoff)
            time.sleep(delay)

    def openai(self) -> OpenAI:
        """An OpenAI SDK client; it shares the group's connections, so do not close it."""
        return self._sdk.sync(self._key, self._book)


class AsyncExternalServer:
    """The connections to one external model."""

    def __init__(self, role: str, model: ExternalModel, key: str) -> None:
        """Connect lazily."""
        from swarm.client.transport_async import AsyncTransport  # noqa: PLC0415 - aiohttp only here

        self._parts = (role, model, key)
        self._transport = AsyncTransport(ClientSettings(model.base_url, key))
        self._sdk = BookedSDK(role, model)

    def route(self, book: Book) -> AsyncExternalRoute:
        """The way there for one episode."""
        role, model, key = self._parts
        return AsyncExternalRoute(role, model, key, book, self._sdk, self._transport)

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._sdk.close_async()
        await self._transport.close()


class ExternalServer:
    """The connections to one external model, synchronous."""

    def __init__(self, role: str, model: ExternalModel, key: str) -> None:
        """Connect lazily."""
        from swarm.client.transport_sync import SyncTransport  # noqa: PLC0415 - urllib3 only here

        self._parts = (role, model, key)
        self._transport = SyncTransport(ClientSettings(model.base_url, key))
        self._sdk = BookedSDK(role, model)

    def route(self, book: Book) -> ExternalRoute:
        """The way there for one episode."""
        role, model, key = self._parts
        return ExternalRoute(role, model, key, book, self._sdk, self._transport)

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._sdk.close_sync()
        self._transport.close()
