"""``HubClient``: the command line's way to the hub, over urllib3. Each call has a deadline; nothing is retried here."""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Any, cast
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError

from a3r.core import errors as error_module
from a3r.core.errors import A3RError, HubUnreachable, NotFound
from a3r.hub.ready import ReadyRecord
from a3r.hub.refusals import RequestInvalid
from a3r.hub.tokens import HubTokens

Json = dict[str, Any]

TIMEOUT_S = 30.0
LONGEST_NAME = 300


class HubClient:
    """Speaks for the admin.

    Methods return the hub's JSON; they raise the class that the hub's error names, or ``HubUnreachable``.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Connect lazily."""
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        self._pool = urllib3.PoolManager(retries=False)

    def __enter__(self) -> HubClient:
        """Itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._pool.clear()

    def get(self, path: str, *, wait_s: float = 0.0, **query: Any) -> Json:
        """``GET /api/v1/<path>``; ``wait_s`` is sent along and added to the deadline."""
        if wait_s:
            query["wait_s"] = wait_s
        given = {k: v for k, v in query.items() if v is not None}
        suffix = f"?{urlencode(given)}" if given else ""
        return self._send("GET", f"/api/v1/{path}{suffix}", None, self._timeout_s + wait_s)

    def post(self, path: str, body: Json | None = None) -> Json:
        """``POST /api/v1/<path>``."""
        return self._send("POST", f"/api/v1/{path}", body or {}, self._timeout_s)

    def put(self, path: str, body: Json) -> Json:
        """``PUT /api/v1/<path>``."""
        return self._send("PUT", f"/api/v1/{path}", body, self._timeout_s)

    def delete(self, path: str) -> Json:
        """``DELETE /api/v1/{path}``."""
        return self._send("DELETE", f"/api/v1/{path}", None, self._timeout_s)

    def _send(self, method: str, path: str, body: Json | None, timeout_s: float) -> Json:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            response = self._pool.request(
                method,
                self._url + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(total=timeout_s, connect=5.0),
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise HubUnreachable(
                f"The daemon at {self._url} does not answer ({type(error).__name__}).",
                hint="'a3r daemon status' says whether it runs; most commands start it.",
            ) from error
        return read_answer(response.status, response.data)


def read_answer(status: int, data: bytes) -> Json:
    """Return the JSON object of an answer, or raise the error that it names."""
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise HubUnreachable(f"The daemon answered {status} without JSON.", hint="See daemon.log.")
    answer = cast("Json", body)
    if status < 400:
        return answer
    raw = answer.get("error")
    told: Json = cast("Json", raw) if isinstance(raw, dict) else {}
    message = str(told.get("message", f"The daemon answered {status}."))
    cls = ERRORS.get(str(told.get("code")), A3RError)
    raise cls(message, hint=str(told.get("hint", "")), **_details(told))


def _details(told: Json) -> Json:
    details = told.get("details")
    found: Json = cast("Json", details) if isinstance(details, dict) else {}
    return {k: v for k, v in found.items() if k not in ("message", "hint")}


def _classes() -> dict[str, type[A3RError]]:
    found: dict[str, type[A3RError]] = {}
    for value in vars(error_module).values():
        if isinstance(value, type) and issubclass(value, A3RError):
            found[value.code] = value
    return found


ERRORS: dict[str, type[A3RError]] = {**_classes(), RequestInvalid.code: RequestInvalid}
"""Error code -> class."""


def is_alive(ready: ReadyRecord, tokens: HubTokens, *, timeout_s: float = 2.0) -> bool:
    """Whether the daemon of ``ready`` answers *and* proves that it holds our admin token.

    A pid or a port may belong to another program by now: it is asked for a proof first and never sees the token.
    """
    challenge = secrets.token_hex(16)
    with urllib3.PoolManager(retries=False) as pool:
        try:
            response = pool.request(
                "GET",
                f"{ready.url}/health?challenge={challenge}",
                timeout=urllib3.Timeout(total=timeout_s),
                redirect=False,
            )
            body = read_answer(response.status, response.data)
        except (HTTPError, OSError, A3RError):
            return False
    expected = tokens.proof(challenge, ready.epoch)
    return hmac.compare_digest(expected, str(body.get("proof", "")))


def connect(ready: ReadyRecord, tokens: HubTokens) -> HubClient:
    """Return a client of the daemon of ``ready``.

    Raises:
        HubUnreachable: it does not answer or is somebody else.
    """
    if not is_alive(ready, tokens):
        raise HubUnreachable(
            f"No daemon of this workspace answers at {ready.url}.",
            hint="'a3r daemon status' says more.",
        )
    return HubClient(ready.url, tokens.admin)


def segment(text: str, *, slashes: bool = False) -> str:
    """``text`` as one segment of a path, special characters quoted. ``slashes``: the route takes ``campaign/name`` as one.

    Raises:
        NotFound: nothing could have this name: the hub's router would see another path, and answer in its own words.
    """
    if not text.strip() or len(text) > LONGEST_NAME or ("/" in text and not slashes):
        shown = text if len(text) <= LONGEST_NAME else f"{text[:60]}..."
        raise NotFound(
            f"Nothing is named {shown!r}.",
            hint="Ids and names are short and hold no slash; the noun's 'list' command shows them.",
        )
    # A command line may hold bytes that are no text; they name nothing, and the hub says so.
    return quote(text, safe="", errors="replace")
