"""Sends the evidence of attempts up: steps, events, evaluation rounds, raw logs, and last the finish report.

Reads files only and remembers per attempt how much the hub has, so that nothing is lost while the hub is away, whoever
restarts, and a repeat is harmless. A stale fencing token ends the sending; the folder stays as evidence.
"""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict, Field

from a3r.core.errors import A3RError, Conflict, NotFound
from a3r.core.ports import Hub
from a3r.core.types import FailureClass
from a3r.core.wire import EventReport, EventsRequest, FinishReport, LogChunk, StepsRequest
from a3r.worker.folder import AttemptFolder
from a3r.worker.redaction import Redactor, redactor_of
from a3r.worker.supervisor import write_json

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
CHUNKS_A_PASS = 4
"""Of one log in one pass, while the attempt runs."""


class Sent(BaseModel):
    """``uplink.json``: what the hub has acknowledged."""

    model_config = ConfigDict(extra="ignore")

    steps: int = 0
    events: int = 0
    rounds: list[str] = Field(default_factory=list[str])
    logs: dict[str, int] = Field(default_factory=dict[str, int])
    """Log -> bytes."""
    finished: bool = False
    """The finish report is acknowledged: there is nothing left to do."""
    refused: str = ""
    """Why the hub does not want this attempt's results; nothing more is sent."""


class AttemptUplink:
    """The evidence of one attempt. One thread at a time; ``refuse`` may come from another."""

    def __init__(
        self,
        folder: AttemptFolder,
        hub: Hub,
        on_refused: Callable[[str], None],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            folder: the attempt's.
            hub: who gets the evidence.
            on_refused: told once, with the reason, when the hub does not want the attempt any more.
            environ: the worker's own environment, where secrets are looked up: they are taken out of what is sent.
        """
        self._environ = environ or {}
        self._kept_here = set[str]()
        """Logs that the hub does not take."""
        self._redactor = Redactor()
        self._folder, self._hub, self._on_refused = folder, hub, on_refused
        spec = folder.spec()
        self._id, self._fencing = spec.attempt_id, spec.fencing_token
        self._file = folder.path / "uplink.json"
        self._saving = threading.Lock()
        self.sent = (
            Sent.model_validate_json(self._file.read_bytes()) if self._file.exists() else Sent()
        )

    @property
    def over(self) -> bool:
        """Whether nothing more will be sent."""
        return self.sent.finished or bool(self.sent.refused)

    def send(self) -> None:
        """Send what is new. Safe to repeat.

        Raises:
            HubUnreachable: try later; what was acknowledged is remembered.
        """
        if self.over:
            return
        before = self.sent.model_copy(deep=True)
        # Whether it is finished is asked first: what was written before the finish report is then all there.
        finish = self._folder.finish()
        self._redactor = redactor_of(self._folder, self._environ)
        try:
            self._send_events()
            self._send_steps()
            self._send_rounds()
            self._send_logs(everything=finish is not None)
            if finish is not None:
                self._send_finish(finish)
                self.sent.finished = True
        except (Conflict, NotFound) as error:
            self._refused(error)
        finally:
            if self.sent != before:
                self._save()

    def without_secrets(self, said: str) -> str:
        """What a heartbeat may say of the attempt: its words can be the last line of a log."""
        if not said:
            return said
        known = self._redactor if self._redactor.secrets else None
        return (known or redactor_of(self._folder, self._environ)).text(said)

    def refuse(self, reason: str) -> None:
        """Send nothing more: the hub said by command that it does not want it."""
        if not self.over:
            self.sent.refused = reason
            self._save()

    def _save(self) -> None:
        # The thread that sends and the one that hears the hub's commands may both have news.
        with self._saving:
            write_json(self._file, self.sent.model_dump(mode="json"))

    def _refused(self, error: A3RError) -> None:
        logger.warning("%s: the hub does not want its results: %s", self._id, error.message)
        self.sent.refused = error.message
        self._on_refused(error.message)

    def _send_finish(self, finish: FinishReport) -> None:
        try:
            told = self._redactor.value(finish.model_dump(mode="json"))
            finish = FinishReport.model_validate(told)
            self._hub.finish(self._id, finish)
        except Conflict as error:
            if not error.details.get("missing"):
                raise
            # All that there is has been sent: the hub must hear why there is no result, not only that it became silent.
            changes = {
                "outcome": "failed",
                "failure": FailureClass.UNKNOWN,
                "reason": error.message,
            }
            self._hub.finish(self._id, finish.model_copy(update=changes))

    def _send_events(self) -> None:
        new = self._folder.events()[self.sent.events :]
        if new:
            told = [self._redactor.value(event.model_dump(mode="json")) for event in new]
            events = [EventReport.model_validate(event) for event in told]
            self._hub.events(self._id, EventsRequest(fencing_token=self._fencing, events=events))
            self.sent.events += len(new)

    def _send_steps(self) -> None:
        new = self._folder.steps()[self.sent.steps :]
        if new:
            self._hub.steps(self._id, StepsRequest(fencing_token=self._fencing, steps=new))
            self.sent.steps += len(new)

    def _send_rounds(self) -> None:
        for path in sorted(self._folder.evals.glob("eval-*.json")):
            name = path.stem.removeprefix("eval-")
            found = self._folder.eval_round(name)
            if found is not None and name not in self.sent.rounds:
                self._hub.evals(self._id, found)
                self.sent.rounds.append(name)

    def _send_logs(self, *, everything: bool) -> None:
        for name in self._log_names():
            left = 10**6 if everything else CHUNKS_A_PASS
            try:
                while left and self._send_chunk(name, everything=everything):
                    left -= 1
            except Conflict as error:
                if "fencing_token" in error.details:
                    raise
                # A log that the hub cannot take must not cost the attempt its result.
                if name not in self._kept_here:
                    logger.warning("%s: the log %r stays here: %s", self._id, name, error.message)
                self._kept_here.add(name)

    def _log_names(self) -> list[str]:
        """``client``, ...; and ``client.tail``, the end of one that went on in further files."""
        found = sorted((self._folder.path / "logs").glob("*.*"))
        logs = [p.stem for p in found if p.suffix == ".log" and not p.name.startswith(".")]
        return logs + [p.name for p in found if p.suffix == ".tail" and not p.name.startswith(".")]

    def _send_chunk(self, name: str, *, everything: bool) -> bool:
        """Send the next piece of a log; False when there was none."""
        offset = self.sent.logs.get(name, 0)
        tail = self._folder.path / "logs" / name
        path = tail if tail.suffix == ".tail" else self._folder.log(name)
        if not path.exists():
            return False
        data = self._redactor.read(path, offset, CHUNK_BYTES, everything=everything)
        if not data:
            return False
        chunk = LogChunk(
            fencing_token=self._fencing,
            name=name,
            offset=offset,
            data_b64=base64.b64encode(data).decode(),
        )
        try:
            self._hub.logs(self._id, chunk)
        except Conflict as error:
            known = error.details.get("length")
            if not isinstance(known, int) or known >= offset:
                raise
            # The hub has less than it acknowledged (its folder was lost or restored): send from there again.
            self.sent.logs[name] = known
            return True
        self.sent.logs[name] = offset + len(data)
        return True


class Backoff:
    """Seconds until the next try: 1, 2, 4 ... 30; 0 after a success."""

    def __init__(self, first_s: float = 1.0, most_s: float = 30.0) -> None:
        self._first_s, self._most_s, self._next_s = first_s, most_s, first_s

    def failed(self) -> float:
        """Seconds to wait now."""
        wait_s, self._next_s = self._next_s, min(self._most_s, self._next_s * 2)
        return wait_s

    def worked(self) -> None:
        """Begin again at the first value."""
        self._next_s = self._first_s
