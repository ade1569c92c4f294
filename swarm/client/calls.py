"""Every request of the client as data: one function a route, shared by the async and the sync transport.

A ``Call`` knows its path, its body, how to read the answer, its deadline and whether it is safe to send twice.
It does not know how bytes travel.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

import orjson
from pydantic import BaseModel

from swarm.client.settings import ClientSettings
from swarm.protocol.clients import (
    CLIENT_HEADER,
    AgreeReply,
    AgreeRequest,
    ClientInfo,
    ClientLease,
    ClientRegistration,
    ControllerLease,
    ControllerRequest,
    Heartbeat,
    TaskCursor,
)
from swarm.protocol.config import TrainConfig
from swarm.protocol.episodes import AbortRequest, FinishReply, FinishRequest, Grant, GrantRequest
from swarm.protocol.errors import (
    AuthError,
    EngineFailed,
    EpisodeGone,
    Forbidden,
    NotFoundError,
    QueueFull,
    RequestError,
    RewardError,
    ServerUnreachable,
    StateError,
    SwarmError,
    TokensError,
    error_from_envelope,
)
from swarm.protocol.messages import (
    CheckpointInfo,
    ConfigChange,
    ConfigRecord,
    EvalRoundClose,
    Status,
)
from swarm.protocol.pool import PoolSnapshot, TaskQueue, TaskQueueInfo
from swarm.protocol.records import EpisodeTrace, StepMetrics

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

LONG_POLL_S = 20.0
"""One held request lasts at most this long; longer waits are several of them (proxies cut idle connections at 30-60 s)."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request: what to send, how to read the answer, how long to try."""

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes | None = None
    deadline_s: float | None = None
    """Seconds for all tries; None = the transport's default."""
    extra_s: float = 0.0
    """Seconds that the server may hold the request by design, on top of the deadline."""
    repeatable: bool = True
    """False: sent again only when it certainly was not received (connection refused) or the server said so (429)."""
    key: str | None = None
    """Bearer of this call; None = the client's token."""

    def within(self, deadline_s: float) -> Call[T]:
        """The same call with another deadline."""
        return replace(self, deadline_s=deadline_s)


def headers_of(call: Call[Any], settings: ClientSettings) -> dict[str, str]:
    """The headers that ``call`` is sent with: who asks (not told to the model's endpoint), by which key, and the body's type."""
    headers = {"Authorization": f"Bearer {call.key or settings.token}"}
    if call.key is None:
        headers[CLIENT_HEADER] = quote(settings.client_id, safe="")
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    return headers


def reader_of(cls: type[M]) -> Callable[[bytes], M]:
    """Read one message."""
    return cls.model_validate_json


def list_reader(cls: type[M]) -> Callable[[bytes], list[M]]:
    """Read a JSON array of messages."""

    def read(raw: bytes) -> list[M]:
        return [cls.model_validate(item) for item in cast("list[Any]", orjson.loads(raw))]

    return read


def _dump(message: BaseModel) -> bytes:
    return orjson.dumps(message.model_dump(mode="json"))


# --- control ---------------------------------------------------------------------------------------------------


def status(
    after_step: int | None = None, wait_s: float = 0.0, *, opened: bool = False
) -> Call[Status]:
    """``GET /swarm/status``; with ``after_step`` the server holds it until ``step > after_step`` or ``wait_s``.

    ``opened``: until the pool's step is larger, which in asynchronous mode is ahead of the weights.
    """
    query = ""
    if after_step is not None:
        wait = {"after_step": after_step, "wait_s": wait_s}
        query = "?" + urlencode(wait | ({"opened": "true"} if opened else {}))
    return Call("GET", f"/swarm/status{query}", reader_of(Status), extra_s=wait_s)


def configure(
    config: TrainConfig | Mapping[str, Any], *, dry_run: bool = False
) -> Call[list[ConfigChange]]:
    """``PUT /swarm/config``; a mapping is sent as it is, so that the server names the unknown key."""
    body = _dump(config) if isinstance(config, TrainConfig) else orjson.dumps(dict(config))
    path = "/swarm/config" + ("?dry_run=true" if dry_run else "")
    return Call("PUT", path, list_reader(ConfigChange), body=body)


def controller(request: ControllerRequest) -> Call[ControllerLease]:
    """``POST /swarm/controller``."""
    return Call("POST", "/swarm/controller", reader_of(ControllerLease), _dump(request))


def config_changes() -> Call[list[ConfigRecord]]:
    """``GET /swarm/config/changes``."""
    return Call("GET", "/swarm/config/changes", list_reader(ConfigRecord))


def read_config() -> Call[TrainConfig]:
    """``GET /swarm/config``."""
    return Call("GET", "/swarm/config", reader_of(TrainConfig))


def start() -> Call[Status]:
    """``POST /swarm/engine/start``; not repeated on 503, because a failed boot is an answer."""
    return Call(
        "POST", "/swarm/engine/start", reader_of(Status), b"", deadline_s=900.0, repeatable=False
    )


def stop() -> Call[Status]:
    """``POST /swarm/engine/stop``."""
    return Call("POST", "/swarm/engine/stop", reader_of(Status), b"", deadline_s=120.0)


def register(registration: ClientRegistration) -> Call[ClientLease]:
    """``POST /swarm/clients``."""
    return Call("POST", "/swarm/clients", reader_of(ClientLease), _dump(registration))


def heartbeat(client_id: str, instance: str = "") -> Call[ClientLease]:
    """``POST /swarm/clients/{id}/heartbeat``."""
    path = f"/swarm/clients/{quote(client_id, safe='')}/heartbeat"
    return Call("POST", path, reader_of(ClientLease), _dump(Heartbeat(instance=instance)))


def set_cursor(client_id: str, cursor: TaskCursor) -> Call[ClientLease]:
    """``POST /swarm/clients/{id}/cursor``."""
    path = f"/swarm/clients/{quote(client_id, safe='')}/cursor"
    return Call("POST", path, reader_of(ClientLease), _dump(cursor))


def clients(*, gone: bool = False) -> Call[list[ClientInfo]]:
    """``GET /swarm/clients``."""
    return Call("GET", "/swarm/clients" + ("?gone=true" if gone else ""), list_reader(ClientInfo))


def agree(client_id: str, for_step: int) -> Call[AgreeReply]:
    """``POST /swarm/clients/{id}/agree``. Idempotent."""
    path = f"/swarm/clients/{quote(client_id, safe='')}/agree"
    return Call("POST", path, reader_of(AgreeReply), _dump(AgreeRequest(for_step=for_step)))


def set_task_queue(name: str, queue: TaskQueue) -> Call[TaskQueueInfo]:
    """``PUT /swarm/task_sets/{name}``."""
    path = f"/swarm/task_sets/{quote(name, safe='')}"
    return Call("PUT", path, reader_of(TaskQueueInfo), _dump(queue))


def task_queues() -> Call[list[TaskQueueInfo]]:
    """``GET /swarm/task_sets``."""
    return Call("GET", "/swarm/task_sets", list_reader(TaskQueueInfo))


def pool() -> Call[PoolSnapshot]:
    """``GET /swarm/pool``."""
    return Call("GET", "/swarm/pool", reader_of(PoolSnapshot))


def metrics(after_step: int = 0) -> Call[list[StepMetrics]]:
    """``GET /swarm/metrics``: one record for each completed step greater than ``after_step``."""
    return Call("GET", f"/swarm/metrics?after_step={after_step}", list_reader(StepMetrics))


def checkpoints() -> Call[list[CheckpointInfo]]:
    """``GET /swarm/checkpoints``."""
    return Call("GET", "/swarm/checkpoints", list_reader(CheckpointInfo))


def save_checkpoint() -> Call[CheckpointInfo]:
    """``POST /swarm/checkpoints``."""
    return Call("POST", "/swarm/checkpoints", reader_of(CheckpointInfo), b"", deadline_s=600.0)


def close_eval_round(close: EvalRoundClose) -> Call[Status]:
    """``POST /swarm/evals``."""
    return Call("POST", "/swarm/evals", reader_of(Status), _dump(close))


# --- episodes --------------------------------------------------------------------------------------------------


def grant(request: GrantRequest) -> Call[Grant]:
    """``POST /swarm/episodes``, under a name of its own: sent again, it gets the episode of the first sending."""
    named = request.model_copy(update={"request_id": request.request_id or uuid.uuid4().hex})
    return Call("POST", "/swarm/episodes", reader_of(Grant), _dump(named), extra_s=request.wait_s)


def finish(episode_id: str, request: FinishRequest) -> Call[FinishReply]:
    """``POST /swarm/episodes/{id}/finish`` (idempotent: the first finish wins).

    Raises:
        RewardError: a value that is not finite, which JSON could not even carry.
    """
    path = f"/swarm/episodes/{episode_id}/finish"
    return Call("POST", path, reader_of(FinishReply), finish_body(request))


def finish_body(request: FinishRequest) -> bytes:
    """A finish as JSON; what was not told is left out.

    Raises:
        RewardError: a value that is not finite, which JSON could not even carry.
    """
    values = {"reward": request.reward, **request.rewards, **request.metrics}
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise RewardError(
                f"{name!r} is {value!r}.", hint="Give a finite number, or abort the episode."
            )
    for one in request.tokens:
        if not all(map(math.isfinite, (*one.advantages, *one.weights))):
            raise TokensError(
                f"The tokens of call {one.call_index} hold a number that is not finite.",
                hint="Give finite advantages and weights, or leave the call out.",
            )
    return orjson.dumps(request.model_dump(mode="json", exclude_defaults=True))


def abort(episode_id: str, request: AbortRequest) -> Call[FinishReply]:
    """``POST /swarm/episodes/{id}/abort`` (idempotent)."""
    return Call(
        "POST", f"/swarm/episodes/{episode_id}/abort", reader_of(FinishReply), _dump(request)
    )


def trace(episode_id: str, *, calls: bool = True) -> Call[EpisodeTrace]:
    """``GET /swarm/episodes/{id}/trace``, or without ``/trace`` when the calls are not wanted."""
    path = f"/swarm/episodes/{episode_id}" + ("/trace" if calls else "")
    return Call("GET", path, reader_of(EpisodeTrace))


def chat(key: str, payload: Mapping[str, Any], deadline_s: float) -> Call[dict[str, Any]]:
    """``POST /v1/chat/completions`` with an episode's key; a repeat would be a second sample, so it is not repeated."""
    return Call(
        "POST",
        "/v1/chat/completions",
        orjson.loads,
        orjson.dumps(payload),
        deadline_s=deadline_s,
        repeatable=False,
        key=key,
    )


# --- answers ---------------------------------------------------------------------------------------------------

_BY_STATUS: dict[int, type[SwarmError]] = {
    cls.status: cls
    for cls in (
        RequestError,
        AuthError,
        Forbidden,
        NotFoundError,
        StateError,
        EpisodeGone,
        RewardError,
        QueueFull,
        EngineFailed,
    )
}


def read_error(url: str, status_code: int, raw: bytes) -> SwarmError:
    """Rebuild the server's error; an answer that is not ours (a proxy's page) becomes a class by its HTTP status."""
    try:
        body: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    error = error_from_envelope(body, status_code)
    if type(error) is not SwarmError:
        return error
    if status_code in (502, 503, 504) and body is None:
        return unreachable(url, f"something on the way answered HTTP {status_code}")
    cls = _BY_STATUS.get(status_code, SwarmError)
    details = {**error.details, "http_status": status_code}
    return cls(error.message, hint=error.hint, **details)


def read_answer(call: Call[T], url: str, raw: bytes) -> T | SwarmError:
    """Read a good answer; one that is not ours (a portal's page, a server of another kind) is an error to return."""
    try:
        return call.read(raw)
    except (ValueError, TypeError) as error:  # pydantic's and orjson's are ValueErrors
        what = type(error).__name__
        return unreachable(url, f"what answered {call.path!r} is not a swarm server ({what})")


def untrusted(url: str, failure: BaseException) -> ServerUnreachable | None:
    """The error for a server whose certificate this machine does not trust, which no second try changes; else None."""
    text = str(failure)
    if "CERTIFICATE_VERIFY_FAILED" not in text and "certificate verify failed" not in text:
        return None
    return ServerUnreachable(
        f"The certificate of the server at {url!r} is not trusted here: {text}.",
        hint="If the server has a certificate of its own: set SSL_CERT_FILE to the PEM file of whoever signed it.",
        url=url,
        why="certificate not trusted",
    )


def unreachable(url: str, why: str, *, waited_s: float | None = None) -> ServerUnreachable:
    """The error for a server that did not answer, with what to check."""
    waited = "" if waited_s is None else f" within {waited_s:.1f} s"
    return ServerUnreachable(
        f"No answer from the swarm server at {url!r}{waited} - {why}.",
        hint=f"Check that `swarm serve` runs there and that the address is right: `swarm status --server {url}`.",
        url=url,
        why=why,
    )
