"""Transports that let ``BookedSDK`` read answers along, for whichever HTTP library the OpenAI SDK brings (httpx, httpx2).

They wrap that library's own transports and are known by duck type only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarm.client.external import Book
    from swarm.client.external_sdk import BookedSDK, Listener


def library_of(client_class: type[Any]) -> Any:
    """The HTTP library that one of the SDK's default clients is built on."""
    homes = [cls.__module__.split(".")[0] for cls in client_class.__mro__]
    return import_module(next(home for home in homes if home.startswith("httpx")))


class ReadAlong:
    """The usual transport, with a listener on each good answer."""

    def __init__(self, library: Any, owner: BookedSDK) -> None:
        """``owner`` knows whose request it is."""
        self._inner: Any = library.HTTPTransport()
        self._stream: Any = type("Stream", (_Stream, library.SyncByteStream), {})
        self._owner = owner

    def handle_request(self, request: Any) -> Any:
        """Send and listen."""
        book = self._owner.before(request)
        with _noted(self._owner, book):
            response = self._inner.handle_request(request)
        listener = self._owner.listener(book, response)
        if listener is not None:
            response.stream = self._stream(response.stream, listener)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()

    def __enter__(self) -> ReadAlong:
        """Open nothing yet."""
        self._inner.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        """Close."""
        self._inner.__exit__(*problem)


class AsyncReadAlong:
    """The same for the asynchronous SDK."""

    def __init__(self, library: Any, owner: BookedSDK) -> None:
        """``owner`` knows whose request it is."""
        self._inner: Any = library.AsyncHTTPTransport()
        self._stream: Any = type("Stream", (_AsyncStream, library.AsyncByteStream), {})
        self._owner = owner

    async def handle_async_request(self, request: Any) -> Any:
        """Send and listen."""
        book = self._owner.before(request)
        with _noted(self._owner, book):
            response = await self._inner.handle_async_request(request)
        listener = self._owner.listener(book, response)
        if listener is not None:
            response.stream = self._stream(response.stream, listener)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def __aenter__(self) -> AsyncReadAlong:
        """Open nothing yet."""
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        """Close."""
        await self._inner.__aexit__(*problem)


class _Stream:
    def __init__(self, inner: Any, listener: Listener) -> None:
        self._inner, self._listener = inner, listener

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._inner:
            self._listener.hear(piece)
            yield piece

    def close(self) -> None:
        self._inner.close()
        self._listener.end()


class _AsyncStream:
    def __init__(self, inner: Any, listener: Listener) -> None:
        self._inner, self._listener = inner, listener

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._listener.hear(piece)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
        self._listener.end()


@contextmanager
def _noted(owner: BookedSDK, book: Book) -> Generator[None]:
    """Connection errors are noted in the book and go on."""
    try:
        yield
    except Exception as error:
        owner.failed(book, f"{type(error).__name__}: {error}")
        raise
