"""What a failure was, read from the exit record and the end of the log, and what may be done about it.

Pure: bytes and records in, a class out. A remedy may touch only what is not under study.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from a3r.core.types import FailureClass
from a3r.worker.processes import ExitRecord

Role = Literal["server", "client", "evaluator"]


class Action(StrEnum):
    """What the worker does next."""

    RESTART = "restart"  # this process, within its budget
    BLOCK = "block"  # wait for a person; probe now and then
    FAIL = "fail"  # end the attempt


@dataclass(frozen=True)
class Remedy:
    """What may be done about a class of failure."""

    action: Action
    permanent: bool
    """True: a new attempt of the same blueprint would fail in the same way."""
    advice: str
    """For a person."""


REMEDIES: dict[FailureClass, Remedy] = {
    FailureClass.IMPORT: Remedy(Action.FAIL, True, "A module is missing: revise the client."),
    FailureClass.SYNTAX: Remedy(Action.FAIL, True, "The code does not parse: revise the client."),
    FailureClass.CONFIG: Remedy(Action.FAIL, True, "The configuration is refused: revise it."),
    FailureClass.DATA_MISSING: Remedy(Action.FAIL, True, "A file is not there: provide it."),
    FailureClass.CLIENT_CRASH: Remedy(Action.RESTART, False, "The client is restarted."),
    FailureClass.SERVER_CRASH: Remedy(
        Action.RESTART, False, "The server is restarted and resumes from its journal."
    ),
    FailureClass.EVALUATOR_CRASH: Remedy(Action.RESTART, False, "The round is run again."),
    FailureClass.OUT_OF_MEMORY: Remedy(
        Action.RESTART, False, "Run fewer attempts at once, or on a larger host."
    ),
    FailureClass.DISK_FULL: Remedy(Action.BLOCK, False, "Make room on the disk."),
    FailureClass.PORT_TAKEN: Remedy(Action.RESTART, False, "Another port is taken."),
    FailureClass.AUTH: Remedy(Action.BLOCK, False, "Check the key of the external service."),
    FailureClass.OUT_OF_CREDIT: Remedy(Action.BLOCK, False, "Top up the external service."),
    FailureClass.NAN: Remedy(Action.FAIL, False, "A number was not finite: look at the reward."),
    FailureClass.STALL: Remedy(Action.FAIL, False, "Nothing moved: see who waited for whom."),
    FailureClass.MAX_TIME: Remedy(Action.FAIL, False, "Raise limits.max_time_s, or run less."),
    FailureClass.STOPPED: Remedy(Action.FAIL, True, "Somebody asked for it."),
    FailureClass.HOST_LOST: Remedy(Action.FAIL, False, "The host did not come back."),
    FailureClass.KILLED: Remedy(Action.RESTART, False, "Something else ended it by a signal."),
    FailureClass.UNKNOWN: Remedy(Action.RESTART, False, "Read the end of the log."),
}

_LAST_WORD = re.compile(
    r"^(?:[\w]+\.)*([A-Z]\w*(?:Error|Exception|Gone|Failed|Failures|Timeout|Unreachable|Interrupt|Exit))(?::[ \t]*(.*))?$",
    re.MULTILINE,
)
"""The line that ends a traceback."""

_BY_EXCEPTION: dict[str, FailureClass] = {
    "ModuleNotFoundError": FailureClass.IMPORT,
    "ImportError": FailureClass.IMPORT,
    "SyntaxError": FailureClass.SYNTAX,
    "IndentationError": FailureClass.SYNTAX,
    "TabError": FailureClass.SYNTAX,
    "ConfigError": FailureClass.CONFIG,
    "ValidationError": FailureClass.CONFIG,
    "FileNotFoundError": FailureClass.DATA_MISSING,
    "MemoryError": FailureClass.OUT_OF_MEMORY,
    "OutOfMemoryError": FailureClass.OUT_OF_MEMORY,
    "RewardError": FailureClass.NAN,
    "AuthError": FailureClass.AUTH,
    "Forbidden": FailureClass.AUTH,
    "AuthenticationError": FailureClass.AUTH,
    "PermissionDeniedError": FailureClass.AUTH,
}

_BY_TEXT: tuple[tuple[FailureClass, re.Pattern[str]], ...] = tuple(
    (found, re.compile(pattern, re.IGNORECASE))
    for found, pattern in (
        (FailureClass.DISK_FULL, r"no space left on device|disk quota exceeded|errno 28\b"),
        (FailureClass.PORT_TAKEN, r"address already in use|cannot listen on \S+:\d+"),
        (
            FailureClass.OUT_OF_MEMORY,
            r"cuda out of memory|cannot allocate memory|out of memory|std::bad_alloc|"
            r"defaultcpuallocator: (?:can't|not enough)",
        ),
        (
            FailureClass.OUT_OF_CREDIT,
            r"insufficient_quota|exceeded your current quota|out of credit|credit balance is too low|"
            r"payment required|billing hard limit",
        ),
        (
            FailureClass.AUTH,
            r"invalid[_ ]api[_ ]key|incorrect api key|error code: 401|401 unauthorized|auth_failed",
        ),
        (FailureClass.NAN, r"reward_not_finite|(?:loss|reward|gradient)s? (?:is|was|are) (?:nan|not finite)"),
        (FailureClass.CONFIG, r"^swarm serve: |config_invalid|no such option:|invalid value for '--"),
        (FailureClass.DATA_MISSING, r"no such file or directory"),
    )
)  # fmt: skip

EVALUATOR_REFUSED = 3
"""Exit code of ``a3r.worker.evaluator`` for items or scoring code that are not the blueprint's."""

_WORN_OUT: dict[str, FailureClass] = {
    "server": FailureClass.SERVER_CRASH,
    "client": FailureClass.CLIENT_CRASH,
    "evaluator": FailureClass.EVALUATOR_CRASH,
}


def classify(role: Role, record: ExitRecord, tail: bytes) -> FailureClass:
    """Name the failure of a process that ended and should not have.

    The exit record goes first, then the last line of the last traceback, then known phrases of the last lines.
    Log bytes need not be UTF-8.
    """
    if record.timed_out:
        return FailureClass.STALL if role == "evaluator" else FailureClass.MAX_TIME
    if record.asked_by:
        return FailureClass.STOPPED
    if role == "evaluator" and record.code == EVALUATOR_REFUSED:
        return FailureClass.CONFIG
    text = tail.decode("utf-8", "replace").replace("\r", "\n")
    told = _from_text(f"{text}\n{record.error}")
    if told is not None:
        return told
    if record.unknown:
        return FailureClass.UNKNOWN
    if record.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        return FailureClass.KILLED
    return _WORN_OUT[role]


def _from_text(text: str) -> FailureClass | None:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("--- a3r")]
    last = "\n".join(lines[-12:])
    words = list(_LAST_WORD.finditer("\n".join(lines)))
    if words:
        said = words[-1].group(0)
        for found, pattern in _BY_TEXT[:5]:  # an OSError says its reason in its text
            if pattern.search(said):
                return found
        if words[-1].group(1) in _BY_EXCEPTION:
            return _BY_EXCEPTION[words[-1].group(1)]
        if said in last:
            return None  # a traceback that says nothing special: the process's own crash
    for found, pattern in _BY_TEXT:
        if pattern.search(last):
            return found
    return None
