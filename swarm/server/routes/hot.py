"""The app, with a short way in for the routes that every call of every agent takes.

FastAPI's own way costs more than such a route does: telemetry, two exception layers, an exit stack, a walk over all routes.
The routes of the short way are in its table too, which answers what this one does not take (another method) and describes them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm.protocol.errors import SwarmError
from swarm.server.routes.abandon import ClientLeft
from swarm.server.routes.errors import ErrorBoundary, on_swarm_error

Handler = Callable[[Request], Awaitable[Response]]


class QuickHeaders(Headers):
    """Starlette's headers; ``get`` is one look-up where theirs walks over all of them for each name."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        # Of one that was sent twice the first counts.
        self._by_name: dict[bytes, bytes] = dict(reversed(self._list))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a header (any case), ``default`` when it was not sent."""
        value = self._by_name.get(key.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")


class HotRequest(Request):
    """A request with quick headers."""

    @property
    def headers(self) -> Headers:
        """The headers, read once."""
        if not hasattr(self, "_headers"):
            self._headers = QuickHeaders(self.scope)
        return self._headers


class SwarmApp(FastAPI):
    """FastAPI behind a table of hot routes; set ``hot`` before the first request."""

    hot: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the short way when there is one."""
        if self.hot is not None and scope["type"] == "http" and not self.root_path:
            await self.hot(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def take_short(self, routes: Sequence[Route]) -> None:
        """Answer ``routes`` (functions of a request) without FastAPI's layers, and put them into its table."""
        self.router.routes[:0] = routes
        rest = super().__call__
        self.hot = ErrorBoundary(HotRoutes(routes, rest))


class HotRoutes:
    """Finds a handler by method and path: by one look-up, or by a pattern when the path has parameters."""

    def __init__(self, routes: Sequence[Route], rest: ASGIApp) -> None:
        """``rest`` answers everything that no route takes."""
        self._rest = rest
        self._exact: dict[tuple[str, str], Handler] = {}
        self._patterns: list[tuple[str, re.Pattern[str], frozenset[str], Handler]] = []
        for route in routes:
            methods = frozenset(route.methods or ())
            fixed, parameter, _ = route.path.partition("{")
            if parameter:
                self._patterns.append((fixed, route.path_regex, methods, route.endpoint))
            else:
                self._exact.update({(method, route.path): route.endpoint for method in methods})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method, path = scope["method"], scope["path"]
        handler = self._exact.get((method, path))
        parameters: dict[str, Any] = {}
        if handler is None:
            handler, parameters = self._by_pattern(method, path)
        if handler is None or scope.get("root_path"):
            await self._rest(scope, receive, send)
            return
        scope["path_params"] = parameters
        request = HotRequest(scope, receive, send)
        try:
            response = await handler(request)
            await response(scope, receive, send)
        except SwarmError as error:  # a response raises one only before it began
            await (await on_swarm_error(request, error))(scope, receive, send)
        except ClientLeft:
            await Response(status_code=499)(scope, receive, send)

    def _by_pattern(self, method: str, path: str) -> tuple[Handler | None, dict[str, Any]]:
        for fixed, pattern, methods, handler in self._patterns:
            if path.startswith(fixed) and method in methods:
                found = pattern.match(path)
                if found is not None:
                    return handler, found.groupdict()
        return None, {}
