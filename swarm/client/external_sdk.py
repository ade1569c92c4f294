"""The OpenAI SDK on an external model, with a listener between SDK and socket that books what every answer used.

The listener reads along and changes nothing: whole answers and event streams alike end with a ``usage`` when the provider
sends one. Which episode a request belongs to travels in a header that is taken off before the request leaves.
"""

from __future__ import annotations

import secrets
import weakref
from typing import TYPE_CHECKING, Any, cast

import orjson

from swarm.client.external import OUT_OF_MONEY, PASSING_STATUS, Book, ExternalModel, read_usage
from swarm.client.external_http import AsyncReadAlong, ReadAlong, library_of
from swarm.client.openai_clients import load_sdk

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

BOOK_HEADER = "x-swarm-book"
KEPT_BYTES = 1 << 20
"""Of an event stream only the end is kept: usage comes last."""


class Listener:
    """Reads one answer along and books it at its end."""

    def __init__(self, role: str, model: ExternalModel, book: Book, *, events: bool) -> None:
        """``events``: the answer is a stream of server-sent events."""
        self._role, self._model, self._book, self._events = role, model, book, events
        self._heard = bytearray()
        self._done = False

    def hear(self, piece: bytes) -> None:
        """Keep a piece."""
        self._heard += piece
        if self._events and len(self._heard) > KEPT_BYTES:
            del self._heard[: -KEPT_BYTES // 2]

    def end(self) -> None:
        """Book; a second call does nothing."""
        if self._done:
            return
        self._done = True
        self._book.add(self._role, read_usage(self._model, self._body()))

    def _body(self) -> dict[str, Any]:
        if not self._events:
            return _mapping(bytes(self._heard))
        found: dict[str, Any] = {}
        for line in bytes(self._heard).splitlines():
            chunk = _mapping(line[len(b"data:") :]) if line.startswith(b"data:") else {}
            found = chunk if chunk.get("usage") else found
        return found


def _mapping(raw: bytes) -> dict[str, Any]:
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class BookedSDK:
    """SDK clients for one external model that share connections; the SDK is imported on first use."""

    def __init__(self, role: str, model: ExternalModel) -> None:
        """Nothing is opened before the first call."""
        self._role, self._model = role, model
        self._books: weakref.WeakValueDictionary[str, Book] = weakref.WeakValueDictionary()
        self._sync: OpenAI | None = None
        self._async: AsyncOpenAI | None = None

    def sync(self, key: str, book: Book) -> OpenAI:
        """A synchronous SDK client for one episode."""
        if self._sync is None:
            sdk = load_sdk()
            library = library_of(sdk.DefaultHttpxClient)
            http = sdk.DefaultHttpxClient(transport=ReadAlong(library, self))
            self._sync = sdk.OpenAI(**self._options(key), http_client=http)
        assert self._sync is not None
        return self._sync.with_options(default_headers=self._headers(book))

    def asynchronous(self, key: str, book: Book) -> AsyncOpenAI:
        """An asynchronous SDK client for one episode."""
        if self._async is None:
            sdk = load_sdk()
            library = library_of(sdk.DefaultAsyncHttpxClient)
            http = sdk.DefaultAsyncHttpxClient(transport=AsyncReadAlong(library, self))
            self._async = sdk.AsyncOpenAI(**self._options(key), http_client=http)
        assert self._async is not None
        return self._async.with_options(default_headers=self._headers(book))

    def _options(self, key: str) -> dict[str, Any]:
        return {
            "base_url": self._model.base_url,
            "api_key": key or "none",
            "timeout": self._model.timeout_s,
            "max_retries": 5,
        }

    def _headers(self, book: Book) -> dict[str, str]:
        name = secrets.token_hex(8)
        self._books[name] = book
        # Compressed answers could not be read along.
        return {BOOK_HEADER: name, "Accept-Encoding": "identity"}

    def before(self, request: Any) -> Book:
        """Take the episode's header off a request; its book (a fresh one when the episode is gone)."""
        return self._books.get(request.headers.pop(BOOK_HEADER, "")) or Book()

    def failed(self, book: Book, why: str) -> None:
        """Note that a request got no answer."""
        book.went_down(self._role, why)

    def listener(self, book: Book, response: Any) -> Listener | None:
        """Who reads a good answer along; an answer that says that the model is down is noted."""
        status = response.status_code
        if status in PASSING_STATUS or status == OUT_OF_MONEY:
            self.failed(book, f"it answered HTTP {status}")
        if status >= 400:
            return None
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        return Listener(self._role, self._model, book, events=events)

    def close_sync(self) -> None:
        """Close the synchronous connections."""
        if self._sync is not None:
            self._sync.close()
            self._sync = None

    async def close_async(self) -> None:
        """Close the asynchronous connections."""
        if self._async is not None:
            await self._async.close()
            self._async = None
