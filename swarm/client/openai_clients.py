"""OpenAI SDK clients for episodes: one HTTP pool for all of them, the SDK imported on first use.

Each episode gets a copy with its own key and address; building an SDK client from nothing costs tens of milliseconds
(TLS set-up), a copy costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarm.client.errors import ClientUsageError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


def load_sdk() -> Any:
    """The ``openai`` package.

    Raises:
        ClientUsageError: it is not installed.
    """
    try:
        import openai  # noqa: PLC0415 - an optional dependency that takes half a second to import
    except ImportError as error:
        raise ClientUsageError(
            "The openai package is not installed.",
            hint="Install it with `pip install 'a3r[agent]'`, or use episode.chat().",
        ) from error
    return openai


class OpenAIClients:
    """Lazily made SDK clients that share connections."""

    def __init__(self, timeout_s: float) -> None:
        """``timeout_s`` bounds each SDK request."""
        self._timeout_s = timeout_s
        self._sync: OpenAI | None = None
        self._async: AsyncOpenAI | None = None

    def sync(self, base_url: str, api_key: str) -> OpenAI:
        """A synchronous SDK client for one episode."""
        if self._sync is None:
            self._sync = load_sdk().OpenAI(
                base_url=base_url, api_key=api_key, timeout=self._timeout_s
            )
        assert self._sync is not None
        return self._sync.with_options(base_url=base_url, api_key=api_key)

    def asynchronous(self, base_url: str, api_key: str) -> AsyncOpenAI:
        """An asynchronous SDK client for one episode."""
        if self._async is None:
            self._async = load_sdk().AsyncOpenAI(
                base_url=base_url, api_key=api_key, timeout=self._timeout_s
            )
        assert self._async is not None
        return self._async.with_options(base_url=base_url, api_key=api_key)

    def close_sync(self) -> None:
        """Close the synchronous pool."""
        if self._sync is not None:
            self._sync.close()
            self._sync = None

    async def close_async(self) -> None:
        """Close the asynchronous pool."""
        if self._async is not None:
            await self._async.close()
            self._async = None
