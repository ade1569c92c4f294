"""The Store: all nouns of the ledger on one open database. Synchronous; every method is one short transaction."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from a3r.core.clock import SystemClock
from a3r.core.ports import Clock
from a3r.store.amendments import AmendmentBook
from a3r.store.attempts import AttemptBook
from a3r.store.beats import BeatBook
from a3r.store.blueprints import BlueprintBook
from a3r.store.campaigns import CampaignBook
from a3r.store.changes import Changes
from a3r.store.claimable import ClaimableBook
from a3r.store.commands import CommandBook
from a3r.store.engine import BUSY_TIMEOUT_S, Database
from a3r.store.evidence import EvidenceBook
from a3r.store.files import FileBook
from a3r.store.findings import FindingBook
from a3r.store.finishing import FinishBook
from a3r.store.history import HistoryBook
from a3r.store.hosts import HostBook
from a3r.store.jobs import JobBook
from a3r.store.leases import LeaseBook
from a3r.store.llm_calls import LlmCallBook
from a3r.store.pools import PoolBook
from a3r.store.readings import ReadingBook
from a3r.store.retrying import RetryBook
from a3r.store.reuse import ReuseBook
from a3r.store.reviews import ReviewBook
from a3r.store.revisions import RevisionBook
from a3r.store.runs import RunBook
from a3r.store.schedules import ScheduleBook
from a3r.store.stages import StageBook
from a3r.store.waiting import WaitingBook
from a3r.store.worker_tokens import WorkerTokenBook
from a3r.store.workers import WorkerBook


class Store(
    CampaignBook,
    StageBook,
    BlueprintBook,
    ReviewBook,
    RunBook,
    AttemptBook,
    BeatBook,
    ClaimableBook,
    RetryBook,
    FinishBook,
    EvidenceBook,
    HistoryBook,
    FileBook,
    WorkerBook,
    WorkerTokenBook,
    HostBook,
    LeaseBook,
    CommandBook,
    PoolBook,
    WaitingBook,
    RevisionBook,
    JobBook,
    LlmCallBook,
    ReadingBook,
    AmendmentBook,
    FindingBook,
    ScheduleBook,
    ReuseBook,
):
    """Everything that a campaign leaves behind, under verb names; the methods are in the module of their noun.

    Thread-safe. Returns frozen rows (``a3r.store.rows``). Every change of state adds an event in the same
    transaction. Raises ``NotFound``, ``Conflict`` and ``StoreError`` only.
    """

    @classmethod
    def open(
        cls, path: Path, clock: Clock | None = None, *, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> Store:
        """Open or create the database file, at the current schema; ``logs/`` and ``artifacts/`` lie beside it.

        Raises:
            StoreError: locked, read-only, disk full, damaged, from a newer a3r, or no a3r database.
        """
        return cls(Database(path, busy_timeout_s), clock or SystemClock())

    @property
    def changed(self) -> Changes:
        """Counts this process's writes; long polls wait on it."""
        return self._db.changed

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
