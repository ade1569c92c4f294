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

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import (
    AuthError,
    EngineFailed,
    EpisodeGone,
    NotFoundError,
    QueueFull,
    RequestError,
    RewardError,
    ServerUnreachable,
    StateError,
    SwarmError,
    error_from_envelope,
)
from swarm.protocol.messages import (
    AbortRequest,
    CheckpointInfo,
    ClientLease,
    ClientRegistration,
    ConfigChange,
    EpisodeTrace,
    EvalRoundClose,
    FinishReply,
    FinishRequest,
    Grant,
    GrantRequest,
    PoolSnapshot,
    Status,
    StepMetrics,
)

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


def status(after_step: int | None = None, wait_s: float = 0.0) -> Call[Status]:
    """``GET /swarm/status``; with ``after_step`` the server holds it until ``step > after_step`` or ``wait_s``."""
    query = (
        "" if after_step is None else "?" + urlencode({"after_step": after_step, "wait_s": wait_s})
    )
    return Call("GET", f"/swarm/status{query}", reader_of(Status), extra_s=wait_s)


def configure(config: TrainConfig | Mapping[str, Any]) -> Call[list[ConfigChange]]:
    """``PUT /swarm/config``; a mapping is sent as it is, so that the server names the unknown key."""
    body = _dump(config) if isinstance(config, TrainConfig) else orjson.dumps(dict(config))
    return Call("PUT", "/swarm/config", list_reader(ConfigChange), body=body)


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


def heartbeat(client_id: str) -> Call[ClientLease]:
    """``POST /swarm/clients/{id}/heartbeat``."""
    path = f"/swarm/clients/{quote(client_id, safe='')}/heartbeat"
    return Call("POST", path, reader_of(ClientLease), b"")


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
    for name, value in {"reward": request.reward, **request.metrics}.items():
        if value is not None and not math.isfinite(value):
            raise RewardError(
                f"{name!r} is {value!r}.", hint="Give a finite number, or abort the episode."
            )
    body = orjson.dumps({"reward": request.reward, "metrics": request.metrics})
    return Call("POST", f"/swarm/episodes/{episode_id}/finish", reader_of(FinishReply), body)


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
    return cls(error.message, hint=error.hint, **error.details)


def read_answer(call: Call[T], url: str, raw: bytes) -> T | SwarmError:
    """Read a good answer; one that is not ours (a portal's page, a server of another kind) is an error to return."""
    try:
        return call.read(raw)
    except (ValueError, TypeError) as error:  # pydantic's and orjson's are ValueErrors
        what = type(error).__name__
        return unreachable(url, f"what answered {call.path!r} is not a swarm server ({what})")


def unreachable(url: str, why: str, *, waited_s: float | None = None) -> ServerUnreachable:
    """The error for a server that did not answer, with what to check."""
    waited = "" if waited_s is None else f" within {waited_s:.1f} s"
    return ServerUnreachable(
        f"No answer from the swarm server at {url!r}{waited} - {why}.",
        hint=f"Check that `swarm serve` runs there and that the address is right: `swarm status --server {url}`.",
        url=url,
    )
