"""The hub over HTTP, as ``a3r.core.ports.Hub``. Only ever dials out; nothing is retried here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import urllib3
from pydantic import BaseModel
from urllib3.exceptions import HTTPError, SSLError

from a3r.core import errors as error_module
from a3r.core.errors import A3RError, HubUnreachable
from a3r.core.wire import (
    AttemptSpec,
    ClaimReply,
    ClaimRequest,
    CommandAnswer,
    EvalRound,
    EventsRequest,
    FinishReport,
    HeartbeatReply,
    HeartbeatRequest,
    LogChunk,
    StepsRequest,
    WorkerRegistration,
    WorkerWelcome,
)
from a3r.worker.supervisor import start_time
from a3r.worker.unix_http import PLAIN_URL, SCHEME, UnixManager

TIMEOUT_S = 20.0
CONNECT_S = 5.0
ERRORS: dict[str, type[A3RError]] = {
    value.code: value
    for value in vars(error_module).values()
    if isinstance(value, type) and issubclass(value, A3RError)
}
"""Error code -> class."""


class HubClient:
    """Implements ``Hub``. May be used from many threads."""

    def __init__(
        self,
        locate: Callable[[], tuple[str, str]],
        *,
        timeout_s: float = TIMEOUT_S,
        ca_file: Path | None = None,
        socket: Path | None = None,
        lives: Callable[[], bool] = lambda: True,
    ) -> None:
        """``locate`` returns the hub's URL and the worker token; asked again when the hub did not answer (it may have moved).

        ``lives``: asked before each request; no token is sent to a port whose owner is known to be gone.
        ``ca_file``: certificates (PEM) to trust for https instead of the system's. ``socket``: a Unix socket that leads
        there, whatever the URL.
        """
        self._locate, self._lives = locate, lives
        self._timeout_s = timeout_s
        trust: dict[str, Any] = {} if ca_file is None else {"ca_certs": str(ca_file)}
        self._pool: urllib3.PoolManager = (
            urllib3.PoolManager(retries=False, maxsize=8, **trust)
            if socket is None
            else UnixManager(socket, maxsize=8)
        )
        self._where: tuple[str, str] | None = None

    def register(self, request: WorkerRegistration) -> WorkerWelcome:
        """``POST register``."""
        return WorkerWelcome.model_validate_json(self._post("register", request))

    def claim(self, request: ClaimRequest) -> AttemptSpec | None:
        """``POST claim``, held up to ``wait_s``."""
        raw = self._post("claim", request, wait_s=request.wait_s)
        return ClaimReply.model_validate_json(raw).attempt

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        """``POST heartbeat``, held up to ``wait_s`` while there are no commands."""
        raw = self._post("heartbeat", request, wait_s=request.wait_s)
        return HeartbeatReply.model_validate_json(raw)

    def events(self, attempt_id: str, request: EventsRequest) -> None:
        """``POST attempts/{id}/events``."""
        self._post(f"attempts/{quote(attempt_id, safe='')}/events", request)

    def steps(self, attempt_id: str, request: StepsRequest) -> None:
        """``POST attempts/{id}/steps``."""
        self._post(f"attempts/{quote(attempt_id, safe='')}/steps", request)

    def evals(self, attempt_id: str, request: EvalRound) -> None:
        """``POST attempts/{id}/evals``."""
        self._post(f"attempts/{quote(attempt_id, safe='')}/evals", request)

    def logs(self, attempt_id: str, request: LogChunk) -> None:
        """``POST attempts/{id}/logs``."""
        self._post(f"attempts/{quote(attempt_id, safe='')}/logs", request)

    def finish(self, attempt_id: str, request: FinishReport) -> None:
        """``POST attempts/{id}/finish``."""
        self._post(f"attempts/{quote(attempt_id, safe='')}/finish", request)

    def answer(self, command_id: int, request: CommandAnswer) -> None:
        """``POST commands/{id}``."""
        self._post(f"commands/{command_id}", request)

    def artifact(self, sha256: str) -> bytes:
        """``GET artifacts/{sha256}``."""
        return self._send("GET", f"artifacts/{quote(sha256, safe='')}", None, self._timeout_s)

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._pool.clear()

    def _post(self, path: str, message: BaseModel, *, wait_s: float = 0.0) -> bytes:
        body = message.model_dump_json().encode()
        return self._send("POST", path, body, self._timeout_s + wait_s)

    def _send(self, method: str, path: str, body: bytes | None, timeout_s: float) -> bytes:
        url = "?"
        try:
            url, token = self._where = self._address()
            response = self._pool.request(
                method,
                f"{url.rstrip('/')}/worker/v1/{path}",
                body=body,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                timeout=urllib3.Timeout(total=timeout_s, connect=CONNECT_S),
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            self._where = None
            # Idle connections are to the same hub: held on to, they keep the ssh of a daemon that is gone from ending.
            self._pool.clear()
            raise _unreachable(url, error) from error
        if response.status >= 400:
            raise self._error(response.status, response.data)
        return response.data

    def _address(self) -> tuple[str, str]:
        """URL and token; OSError when there is no hub to speak to."""
        if not self._lives():
            # Its port may be anybody's by now, who must not be sent our token.
            raise OSError("the daemon is gone")
        return self._where or self._locate()

    def _error(self, status: int, data: bytes) -> A3RError:
        if status in (401, 403):
            self._where = None  # perhaps another daemon has the port now
        raw: Any = None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            raw = json.loads(data)["error"]
        if not isinstance(raw, dict):
            return HubUnreachable(f"The hub answered {status} without a reason.", hint="")
        told = cast("dict[str, Any]", raw)
        cls = ERRORS.get(str(told.get("code")), A3RError)
        raw_details = told.get("details")
        details: dict[str, Any] = (
            cast("dict[str, Any]", raw_details) if isinstance(raw_details, dict) else {}
        )
        ids = {key: value for key, value in details.items() if key not in ("message", "hint")}
        return cls(str(told.get("message", status)), hint=str(told.get("hint", "")), **ids)


def _unreachable(url: str, error: Exception) -> HubUnreachable:
    why, hint = type(error).__name__, "The worker goes on and tries again."
    if isinstance(error, SSLError):
        why = f"{why}: {str(error)[:200]}"
        hint = "Is --ca-file the certificate (or its authority) that the daemon shows? " + hint
    return HubUnreachable(f"The hub at {url} does not answer ({why}).", hint=hint)


def fixed(url: str, token_file: Path) -> Callable[[], tuple[str, str]]:
    """A hub at a known address; the token is read when it is needed.

    ``token_file`` holds the bare token, or the hub's tokens.json, of which the worker's is taken.
    """
    return lambda: (url, read_token(token_file))


def at(url: str, token_file: Path, *, ca_file: Path | None = None) -> HubClient:
    """A hub at a known address: ``http(s)://...``, or ``unix:/path`` of a socket that leads there."""
    if url.startswith(SCHEME):
        return HubClient(fixed(PLAIN_URL, token_file), socket=Path(url.removeprefix(SCHEME)))
    return HubClient(fixed(url, token_file), ca_file=ca_file)


def from_ready_file(ready_file: Path, token_file: Path) -> Callable[[], tuple[str, str]]:
    """A hub of this machine, found by its ready record, which each of its starts writes anew."""

    def locate() -> tuple[str, str]:
        try:
            record: dict[str, Any] = json.loads(ready_file.read_text(encoding="utf-8"))
            url = str(record["url"])
        except (ValueError, KeyError) as error:
            raise OSError(f"{ready_file} is no ready record") from error
        if record.get("pid") == 0:
            # It took leave: its port may be anybody's by now, who must not be sent our token.
            raise OSError("the daemon was stopped")
        return url, read_token(token_file)

    return locate


def process_of(ready_file: Path) -> Callable[[], bool]:
    """Whether the process that a ready record names lives; True where the record names none, or cannot be read."""

    def lives() -> bool:
        try:
            pid = int(json.loads(ready_file.read_text(encoding="utf-8"))["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return True
        return start_time(pid) is not None

    return lives


def read_token(path: Path) -> str:
    """The worker token in ``path``, bare or as the member ``worker`` of a JSON object; OSError when there is none."""
    text = path.read_text(encoding="utf-8").strip()
    if not text.startswith("{"):
        return text
    try:
        return str(json.loads(text)["worker"])
    except (ValueError, KeyError) as error:
        raise OSError(f"{path} holds no worker token") from error
