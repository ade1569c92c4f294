"""What a failure was, read from the exit record and the end of the log, and what may be done about it.

Pure: bytes and records in, a class out. A remedy may touch only what is not under study.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from a3r.core.types import FailureClass
from a3r.worker.logs import clean_lines
from a3r.worker.processes import ExitRecord

Role = Literal["server", "client", "evaluator", "environment"]


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
    probe_s: float = 30.0
    """BLOCK: seconds until the first probe; the next ones come ever later, up to ten times this."""


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
    FailureClass.RATE_LIMIT: Remedy(
        Action.BLOCK, False, "The external service asks to go slower: it is tried again.", 10.0
    ),
    FailureClass.EXTERNAL_DOWN: Remedy(
        Action.BLOCK, False, "The external service does not answer: it is tried again."
    ),
    FailureClass.STOP_RULE: Remedy(Action.FAIL, True, "The blueprint said so before the run."),
    FailureClass.SCHEDULER: Remedy(
        Action.FAIL, False, "The cluster took the host back: a new attempt runs elsewhere."
    ),
    FailureClass.ENVIRONMENT: Remedy(
        Action.FAIL, False, "This host lacks what the blueprint asks for; another may have it."
    ),
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
    "DatasetNotFoundError": FailureClass.DATA_MISSING,
    "RepositoryNotFoundError": FailureClass.DATA_MISSING,
    "RevisionNotFoundError": FailureClass.DATA_MISSING,
    "RateLimitError": FailureClass.RATE_LIMIT,
    "InternalServerError": FailureClass.EXTERNAL_DOWN,
    "ServiceUnavailableError": FailureClass.EXTERNAL_DOWN,
    "APITimeoutError": FailureClass.EXTERNAL_DOWN,
    "APIConnectionError": FailureClass.EXTERNAL_DOWN,
    "OverloadedError": FailureClass.EXTERNAL_DOWN,
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
        (FailureClass.OUT_OF_MEMORY, r"a3r sandbox: the memory limit"),
        (FailureClass.ENVIRONMENT, r"a3r sandbox: the walls|found no nvidia driver|no cuda-capable device|cuda driver version is insufficient|"
         r"cannot connect to the docker daemon|docker daemon socket|cannot connect to podman"),
        (FailureClass.DISK_FULL, r"no space left on device|disk quota exceeded|errno 28\b"),
        (FailureClass.PORT_TAKEN, r"address already in use|cannot listen on \S+:\d+"),
        (
            FailureClass.OUT_OF_MEMORY,
            r"cuda out of memory|cannot allocate memory|out of memory|std::bad_alloc|"
            r"defaultcpuallocator: (?:can't|not enough)|cublas_status_alloc_failed|oom-kill|killed process \d+ .*total-vm",
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
        (
            FailureClass.SCHEDULER,
            r"slurmstepd: error: .*(?:cancelled|due to)|\bdue to (?:time limit|preemption|node failure)\b|"
            r"received sigterm from the scheduler|pod was (?:evicted|preempted)|spot instance .*(?:interrupt|terminat|reclaim)",
        ),
        (FailureClass.IMPORT, r"cannot open shared object file|undefined symbol:"),
        (FailureClass.RATE_LIMIT, r"error code: 429|429 too many requests|rate[_ ]limit(?:_exceeded|ed| reached| exceeded)"),
        (FailureClass.EXTERNAL_DOWN, r"error code: 5(?:0[0234]|2\d)\b|50[234] (?:bad gateway|service unavailable|gateway time)|overloaded_error"),
        (FailureClass.NAN, r"reward_not_finite|(?:loss|reward|gradient)s? (?:is|was|are) (?:nan|not finite)"),
        (FailureClass.CONFIG, r"^swarm serve: |config_invalid|no such option:|invalid value for '--|"
         r"pull access denied|manifest unknown|manifest for \S+ not found|invalid reference format|no such image"),
        (FailureClass.DATA_MISSING, r"no such file or directory"),
    )
)  # fmt: skip

_NO_NETWORK = re.compile(
    r"temporary failure in name resolution|name or service not known|max retries exceeded|network is unreachable|"
    r"connection (?:refused|reset|timed out)|read timed out|newconnectionerror|proxyerror|could not resolve host",
    re.IGNORECASE,
)
_NO_PACKAGE = re.compile(
    r"no matching distribution found|could not find a version that satisfies|invalid requirement|resolutionimpossible|"
    r"requires a different python|pull access denied|manifest unknown|no such image",
    re.IGNORECASE,
)
SAID_FIRST = 7
"""Of ``_BY_TEXT``: those that an exception of any name may say in its text."""
EVALUATOR_REFUSED = 3
"""Exit code of ``a3r.worker.evaluator`` for items or scoring code that are not the blueprint's."""

EXTERNAL = (FailureClass.RATE_LIMIT, FailureClass.EXTERNAL_DOWN)
_WORN_OUT: dict[str, FailureClass] = {
    "server": FailureClass.SERVER_CRASH,
    "client": FailureClass.CLIENT_CRASH,
    "evaluator": FailureClass.EVALUATOR_CRASH,
    "environment": FailureClass.UNKNOWN,
}


def classify(
    role: Role, record: ExitRecord, tail: bytes, *, external: bool = False
) -> FailureClass:
    """Name the failure of a process that ended and should not have.

    The exit record goes first, then the last line of the last traceback, then known phrases of the last lines.
    Log bytes need not be UTF-8. ``external``: the client calls models besides its swarm servers; without any, "rate limited"
    and "does not answer" can only be about a swarm server, and are the client's own crash.
    """
    if record.timed_out:
        return FailureClass.STALL if role == "evaluator" else FailureClass.MAX_TIME
    if record.asked_by:
        return FailureClass.STOPPED
    if role == "evaluator" and record.code == EVALUATOR_REFUSED:
        return FailureClass.CONFIG
    text = "\n".join(clean_lines(tail))
    if role == "environment":
        return _of_environment(text)
    told = _from_text(f"{text}\n{record.error}")
    if told in EXTERNAL and not external:
        told = None
    if told is not None:
        return told
    if record.signal == "SIGKILL" and record.oom_kills:
        return FailureClass.OUT_OF_MEMORY
    if record.unknown:
        return FailureClass.UNKNOWN
    if record.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        return FailureClass.KILLED
    return _WORN_OUT[role]


def _of_environment(text: str) -> FailureClass:
    """An environment that could not be made: no network, no such package, no room, or something else."""
    if dict(_BY_TEXT)[FailureClass.DISK_FULL].search(text):
        return FailureClass.DISK_FULL
    if _NO_NETWORK.search(text):
        return FailureClass.EXTERNAL_DOWN
    return FailureClass.CONFIG if _NO_PACKAGE.search(text) else FailureClass.UNKNOWN


def _from_text(text: str) -> FailureClass | None:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("--- a3r")]
    last = "\n".join(lines[-12:])
    words = list(_LAST_WORD.finditer("\n".join(lines)))
    if words:
        said = words[-1].group(0)
        for found, pattern in _BY_TEXT[:SAID_FIRST]:  # an OSError says its reason in its text
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
