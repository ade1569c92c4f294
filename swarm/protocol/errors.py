"""Errors that cross the wire, one class per boundary that failed.

Tree::

    SwarmError
    ├── ConfigError            400  a config value is missing, unknown or out of range
    ├── RequestError           400  a request that can never succeed as sent
    │   ├── UnsupportedParameter
    │   ├── ContextLengthExceeded
    │   └── BodyTooLarge       413  more bytes, values or levels than any request needs
    ├── AuthError              401  no key, or one that is unknown, tampered with or expired
    │   └── Forbidden          403  a key of this server that has no power to do this
    ├── NotFoundError          404  no such episode, client or checkpoint
    ├── StateError             409  the server's state does not allow this (control routes only)
    │   └── ClientReplaced     409  a later client registered under the same id
    ├── EpisodeGone            410  the episode ended, expired or did not survive a restart
    ├── RewardError            422  a reward that is not a finite number
    │   └── TokensError        422  advantages, weights or masks that do not fit the call's tokens
    ├── QueueFull              429  too many held calls; the only answer an SDK should retry
    ├── CheckpointFailed       507  weights could not be written (a full disk); the engine lives on
    ├── EngineFailed           503  the engine process is gone and could not be brought back
    ├── JournalFailed          500  the journal's file cannot be written or read; nothing was acknowledged
    └── ServerUnreachable      (client side only) no answer within the deadline

The server maps these to the OpenAI error envelope plus ``code`` and ``hint``; the client raises the same class back.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast


class SwarmError(Exception):
    """Base of every error of the swarm: a message, a stable ``code``, a ``hint`` and the HTTP ``status``."""

    code: ClassVar[str] = "swarm_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "", **ids: Any) -> None:
        """Keep ``message`` (what happened and why), ``hint`` (what to do) and any ids as ``details``."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = ids

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by message, hint and details, so that the class survives a process boundary."""
        return (_rebuild, (type(self), self.message, self.hint, self.details))

    def __str__(self) -> str:
        """Message, then the hint on a line of its own."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def envelope(self) -> dict[str, Any]:
        """Return the wire form: ``{"error": {"message", "type", "code", "hint", "details"}}``."""
        return {
            "error": {
                "message": self.message,
                "type": type(self).__name__,
                "code": self.code,
                "hint": self.hint,
                "details": self.details,
            }
        }


def _rebuild(cls: type[SwarmError], message: str, hint: str, details: dict[str, Any]) -> SwarmError:
    return cls(message, hint=hint, **details)


class ConfigError(SwarmError):
    """A configuration that names something unknown or out of range."""

    code = "config_invalid"
    status = 400


class RequestError(SwarmError):
    """A request that can never succeed as it was sent."""

    code = "bad_request"
    status = 400


class UnsupportedParameter(RequestError):
    """A parameter of the dialect that this server does not honour; it is refused, never ignored."""

    code = "unsupported_parameter"


class ContextLengthExceeded(RequestError):
    """Prompt plus answer do not fit the model's context."""

    code = "context_length_exceeded"


class BodyTooLarge(RequestError):
    """A body with more bytes, values or levels of nesting than any request needs."""

    code = "body_too_large"
    status = 413


class AuthError(SwarmError):
    """No key or token, or one that is unknown, was tampered with, or has expired."""

    code = "auth_failed"
    status = 401


class Forbidden(AuthError):
    """A key or token of this server, but without the power asked for: another one is needed, not a new one."""

    code = "forbidden"
    status = 403


class NotFoundError(SwarmError):
    """No such episode, client, group or checkpoint."""

    code = "not_found"
    status = 404


class StateError(SwarmError):
    """The server's state does not allow this control action now."""

    code = "wrong_state"
    status = 409


class ClientReplaced(StateError):
    """A later instance of the client registered under the same id; this one must stop."""

    code = "client_replaced"


class EpisodeGone(SwarmError):
    """The episode has ended, passed a deadline, or did not survive a restart of the server."""

    code = "episode_gone"
    status = 410


class RewardError(SwarmError):
    """A reward or metric that is not a finite number."""

    code = "reward_not_finite"
    status = 422


class TokensError(RewardError):
    """Advantages, weights or masks of a finish that do not fit the sampled tokens of the call that they are for."""

    code = "tokens_invalid"


class QueueFull(SwarmError):
    """Too many calls are held; retry later (the answer carries ``Retry-After``)."""

    code = "queue_full"
    status = 429


class EngineFailed(SwarmError):
    """The engine process died and could not be brought back within its restart budget."""

    code = "engine_failed"
    status = 503


class CheckpointFailed(SwarmError):
    """The weights could not be written: the disk is full or read-only. The engine lives on, what was saved before stays."""

    code = "checkpoint_failed"
    status = 507


class JournalFailed(SwarmError):
    """The journal's file is locked, full, read-only or damaged; what was asked for was not recorded and not acknowledged."""

    code = "journal_failed"
    status = 500


class ServerUnreachable(SwarmError):
    """The client got no answer from the server before its deadline."""

    code = "server_unreachable"
    status = 503


def _tree(cls: type[SwarmError]) -> dict[str, type[SwarmError]]:
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found.update(_tree(child))
    return found


def error_from_envelope(body: object, status: int) -> SwarmError:
    """Rebuild the server's error from its wire form; an unknown shape becomes a plain ``SwarmError``."""
    error = _mapping(_mapping(body).get("error"))
    name = error.get("class") or error.get("type", "")
    cls = _tree(SwarmError).get(str(name), SwarmError)
    message = str(
        error.get("message") or f"The server answered HTTP {status} without an error body."
    )
    return cls(message, hint=str(error.get("hint") or ""), **_mapping(error.get("details")))


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {str(key): item for key, item in cast("dict[Any, Any]", value).items()}
