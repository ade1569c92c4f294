"""The journal: grants, finishes, batches, steps, checkpoints, eval records and events of one state folder.

Durable guarantee: when a method returns, what it recorded survives the death of this process (kill -9 included) as
one whole, because SQLite's write-ahead log is then with the operating system. It does not promise to survive a power
cut of the machine: ``synchronous=NORMAL`` syncs to disk only at checkpoints of the log. When a method raises, nothing
of its call was recorded. One journal is open at a time: the file is locked while it is.

Knows nothing of states, policies or engines; the service decides, the journal remembers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.protocol.messages import Event
from swarm.server.journal.codec import pack, unpack_data
from swarm.server.journal.config_book import ConfigBook
from swarm.server.journal.database import BUSY_TIMEOUT_S, Database
from swarm.server.journal.queue_book import QueueBook
from swarm.server.journal.records import EvalRound, ResumeState
from swarm.server.journal.step_book import StepBook

JOURNAL_FILE = "journal.sqlite"


class Journal(StepBook, ConfigBook, QueueBook):
    """One open journal. Every method is synchronous and quick; call it from one thread.

    Every method raises ``JournalFailed`` (with a hint) when the file cannot be written, read or decoded.
    Everything but events and cursors belongs to the newest incarnation; older ones stay in the file, unread.
    """

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        """Use ``Journal.open``."""
        super().__init__(database)
        self._now = now

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        now: Callable[[], float] = time.time,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> Journal:
        """Open or create the file at ``path`` (its folder is made); waits that long for another server to let go of it.

        Raises:
            JournalFailed: locked by another server, read-only, or damaged.
            ConfigError: written by a newer version, or not a journal.
        """
        return cls(Database(Path(path), busy_timeout_s), now)

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._db.close()

    def together(self) -> AbstractContextManager[None]:
        """Record what is called inside as one whole; an exception undoes all of it, so let none end inside."""
        return self._db.transaction()

    @property
    def failing(self) -> str:
        """Why the last write failed; empty when it did not."""
        return self._db.failing

    def tell_failures(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the reason of each failure from now on."""
        self._db.on_failure = listener

    def probe(self) -> None:
        """Write something that changes nothing: clears ``failing``, or raises as any write does."""
        self._db.execute("UPDATE schema_version SET version = version")

    def set_config(self, config: TrainConfig, incarnation: str) -> None:
        """Begin a run with a new ``incarnation``, or replace what the current one began with. Safe to call twice."""
        body = config.model_dump_json()
        if incarnation == self._incarnation:
            self._db.execute("UPDATE runs SET config = ? WHERE run = ?", (body, self._run))
            return
        self._run = self._db.insert(
            "INSERT INTO runs (incarnation, config, started_at) VALUES (?, ?, ?)",
            (incarnation, body, self._now()),
        )
        self._incarnation = incarnation

    @property
    def incarnation(self) -> str | None:
        """Of the newest run; None before the first ``set_config``."""
        return self._incarnation

    def config_of(self, episode_id: str) -> TrainConfig | None:
        """Return the config of the run that an episode belongs to, of any incarnation; None when there is no such episode."""
        found = self._db.rows(
            "SELECT config FROM runs WHERE run = (SELECT run FROM episodes WHERE episode_id = ?)",
            (episode_id,),
        )
        return self._parse(TrainConfig, found[0][0]) if found else None

    def close_eval_round(self, round_: EvalRound) -> None:
        """Record how the evaluation round of a step ended. Safe to call twice: the last one counts."""
        values = (round_.step, round_.planned, round_.completed, int(round_.missed))
        self._db.execute(
            "INSERT OR REPLACE INTO eval_rounds VALUES (?, ?, ?, ?, ?)", (self._need_run(), *values)
        )

    def eval_rounds(self) -> list[EvalRound]:
        """Return the closed evaluation rounds by step."""
        found = self._db.rows(
            "SELECT step, planned, completed, missed FROM eval_rounds WHERE run = ? ORDER BY step",
            (self._run,),
        )
        return [
            EvalRound(step=row[0], planned=row[1], completed=row[2], missed=bool(row[3]))
            for row in found
        ]

    def event(self, kind: str, data: Mapping[str, Any] | None = None) -> Event:
        """Record an event and return it with its number; numbers only grow, also across restarts."""
        at, body = self._now(), dict(data or {})
        seq = self._db.insert(
            "INSERT INTO events (at, kind, data) VALUES (?, ?, ?)", (at, kind, pack(body))
        )
        return Event(seq=seq, at=at, kind=kind, data=body)

    def events_after(self, seq: int, *, limit: int = 1000) -> list[Event]:
        """Return at most ``limit`` events with larger numbers, in order."""
        found = self._db.rows(
            "SELECT seq, at, kind, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
            (seq, limit),
        )
        return [
            Event(
                seq=row[0],
                at=row[1],
                kind=row[2],
                data=self._decode(unpack_data, row[3], f"event {row[0]}"),
            )
            for row in found
        ]

    def set_cursor(self, client_id: str, data: Mapping[str, Any]) -> None:
        """Remember what a client needs after a restart (role, last step seen); the last one counts."""
        self._db.execute(
            "INSERT OR REPLACE INTO cursors VALUES (?, ?)", (client_id, pack(dict(data)))
        )

    def cursor(self, client_id: str) -> dict[str, Any]:
        """Return the remembered data of one client; empty when there is none."""
        found = self._db.rows("SELECT data FROM cursors WHERE client_id = ?", (client_id,))
        return self._decode(unpack_data, found[0][0], f"cursor {client_id!r}") if found else {}

    def cursors(self) -> dict[str, dict[str, Any]]:
        """Return the remembered data of each client."""
        found = self._db.rows("SELECT client_id, data FROM cursors ORDER BY client_id")
        return {name: self._decode(unpack_data, data, f"cursor {name!r}") for name, data in found}

    def load_state(self) -> ResumeState | None:
        """Return everything that resuming needs, or None when no run was ever configured. Changes nothing."""
        metrics = self.step_metrics()
        last = metrics[-1] if metrics else None
        step = last.step if last else 0
        config = self.config_at(step)
        if config is None or self._incarnation is None:
            return None
        known = self.checkpoints()
        checkpoint = known[-1] if known else None
        replay = self.committed_after(checkpoint.step if checkpoint else 0)
        pending = replay[-1] if replay and replay[-1].batch.step > step else None
        waiting = "run = ? AND kind = 'train' AND state = 'finished' AND consumed_step IS NULL AND dropped = ''"
        still_open = (
            "run = ? AND state = 'open' AND ended_order IS"  # prepared ones have their place
        )
        seq = self._db.rows("SELECT coalesce(max(seq), 0) FROM events")[0][0]
        return ResumeState(
            config=config,
            incarnation=self._incarnation,
            step=step,
            policy_version=last.policy_version if last else 0,
            fingerprint=last.fingerprint if last else None,
            checkpoint=checkpoint,
            replay=replay,
            pending=pending,
            pool=self._episodes(waiting, (self._run,), calls=True),
            prepared=self._episodes(f"{still_open} NOT NULL", (self._run,), calls=True),
            orphans=self._episodes(f"{still_open} NULL", (self._run,), calls=False),
            eval_rounds=self.eval_rounds(),
            metrics=metrics,
            last_event_seq=seq,
        )
