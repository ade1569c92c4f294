"""Errors of a3r, one class per boundary that failed; all carry ``code``, ``hint`` and ids.

Tree::

    A3RError
    ├── GoalError          goal.md can not be understood or asks for something impossible
    ├── BlueprintError     a blueprint file or model that does not validate
    ├── WorkspaceError     .a3r/ missing, read-only, on a network file system, or locked
    ├── StoreError         the database (locked, full, from a newer version)
    ├── NotFound           no such campaign, blueprint, run, attempt
    ├── Conflict           the state does not allow this now (stale fencing token, voided review)
    ├── HubUnreachable     the daemon does not answer
    ├── AuthFailed         wrong or missing token
    ├── HostError          tmux, processes, files on a host
    ├── PoolError          a cluster engine did not do what it was asked
    │   ├── PoolUnavailable    does not answer: ask again later
    │   └── PoolRefused        a person must change something
    ├── VerificationFailed a report that its records do not support
    ├── JobFailed          long work of the leader ended without a result: a person must look
    └── ModelError         a language model gave no usable reply
        ├── ModelUnavailable   down, limited, timed out: wait and try again
        ├── ModelRefused       no key, no credit, no such model: a person must act
        ├── BudgetSpent        the campaign may not pay for this call
        └── ReplyInvalid       the reply does not fit after every repair
"""

from __future__ import annotations

from typing import Any, ClassVar


class A3RError(Exception):
    """Base: message (what happened and why), ``hint`` (what to do), ids as ``details``."""

    code: ClassVar[str] = "a3r_error"
    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with hint and details."""
        return (_rebuild, (type(self), self.message, self.hint, self.details))

    def __str__(self) -> str:
        """Message, then the hint on its own line."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def envelope(self) -> dict[str, Any]:
        """Wire and ``--json`` form."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "hint": self.hint,
                "details": self.details,
            }
        }


def _rebuild(cls: type[A3RError], message: str, hint: str, details: dict[str, Any]) -> A3RError:
    return cls(message, hint=hint, **details)


class GoalError(A3RError):
    """goal.md can not be understood, or asks for something impossible."""

    code = "goal_invalid"
    exit_code = 2
    status = 400


class BlueprintError(A3RError):
    """A blueprint that does not validate."""

    code = "blueprint_invalid"
    exit_code = 2
    status = 400


class WorkspaceError(A3RError):
    """The workspace folder can not be used."""

    code = "workspace_unusable"
    exit_code = 2


class StoreError(A3RError):
    """The database can not be used."""

    code = "store_failed"


class NotFound(A3RError):
    """No such campaign, blueprint, run or attempt."""

    code = "not_found"
    exit_code = 2
    status = 404


class Conflict(A3RError):
    """The state does not allow this now, or the caller's fencing token is stale."""

    code = "conflict"
    exit_code = 3
    status = 409


class HubUnreachable(A3RError):
    """The daemon does not answer."""

    code = "hub_unreachable"
    exit_code = 4
    status = 503


class AuthFailed(A3RError):
    """Wrong or missing token."""

    code = "auth_failed"
    exit_code = 4
    status = 401


class HostError(A3RError):
    """tmux, a process or a file on the host failed."""

    code = "host_failed"


class PoolError(A3RError):
    """A cluster engine did not do what it was asked."""

    code = "pool_failed"


class PoolUnavailable(PoolError):
    """The engine does not answer: worth another try."""

    code = "pool_unavailable"
    status = 503


class PoolRefused(PoolError):
    """The engine refuses, or its client is not installed: trying again changes nothing until a person acts."""

    code = "pool_refused"
    exit_code = 2
    status = 400


class VerificationFailed(A3RError):
    """A report that its records do not support."""

    code = "verification_failed"
    exit_code = 5


class JobFailed(A3RError):
    """Long work of the leader ended without a result; the campaign waits for a person. ``details["job"]`` names it."""

    code = "job_failed"


class ModelError(A3RError):
    """A language model gave no usable reply."""

    code = "model_failed"


class ModelUnavailable(ModelError):
    """Down, rate limited or timed out: worth another try after ``details["retry_after_s"]`` (None: nobody said)."""

    code = "model_unavailable"
    status = 503


class ModelRefused(ModelError):
    """No key, no credit, no price, no such model: trying again changes nothing until a person acts."""

    code = "model_refused"


class BudgetSpent(ModelError):
    """The campaign's budget does not allow this call."""

    code = "budget_spent"


class ReplyInvalid(ModelError):
    """The reply does not have the asked form, after every repair that is allowed."""

    code = "reply_invalid"
