"""The episodes of the journal: granted, ended, evaluated, with their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from swarm.protocol.errors import NotFoundError, StateError
from swarm.protocol.records import CallRecord
from swarm.protocol.states import EpisodeState
from swarm.server.journal.codec import (
    EPISODE_COLUMNS,
    episode_record,
    episode_values,
    pack,
    pack_calls,
    pack_details,
)
from swarm.server.journal.database import Database
from swarm.server.journal.picture_book import PictureBook
from swarm.server.journal.records import EpisodeDetails, EpisodeRecord

_PLACES = ", ".join("?" * (EPISODE_COLUMNS.count(",") + 1))
_GRANT = f"INSERT INTO episodes ({EPISODE_COLUMNS}, run) VALUES ({_PLACES}, ?)"  # noqa: S608 - constants only
_RECORD = (
    f"INSERT OR REPLACE INTO episodes ({EPISODE_COLUMNS}, run, ended_order) "  # noqa: S608 - constants only
    f"VALUES ({_PLACES}, ?, ?)"
)
_END = (
    "UPDATE episodes SET state = ?, reward = ?, metrics = ?, reason = ?, dropped = ?, ended_at = ?, ended_order = ?, "
    "call_count = ?, details = ? WHERE episode_id = ? AND state = 'open'"
)


_PREPARE = (
    "UPDATE episodes SET details = ?, ended_order = ?, call_count = ? "
    "WHERE episode_id = ? AND state = 'open' AND ended_order IS NULL"
)
_MOVE_CALLS = (
    "UPDATE calls SET ended_order = ? "
    "WHERE ended_order = (SELECT ended_order FROM episodes WHERE episode_id = ?)"
)
_CALLS = "INSERT INTO calls (ended_order, body) VALUES (?, ?)"
FORGET_CALLS = "DELETE FROM calls WHERE ended_order IN (SELECT ended_order FROM episodes WHERE "


class _End(NamedTuple):
    """The columns of an end."""

    state: EpisodeState
    reward: float | None
    metrics: Mapping[str, float]
    reason: str
    dropped: str
    ended_at: float


class EpisodeBook(PictureBook):
    """Tables ``episodes`` and ``calls``."""

    def __init__(self, database: Database) -> None:
        """Go on counting ends where the file stopped."""
        super().__init__(database)
        self._ends = database.rows("SELECT coalesce(max(ended_order), 0) FROM episodes")[0][0]

    def record_grant(self, episode: EpisodeRecord) -> None:
        """Record a granted episode (state OPEN), before the grant is acknowledged."""
        self._db.execute(_GRANT, (*episode_values(episode), self._need_run()))

    def record_finish(
        self,
        episode_id: str,
        *,
        reward: float | None,
        metrics: Mapping[str, float],
        calls: Sequence[CallRecord],
        ended_at: float,
        details: EpisodeDetails | None = None,
        prepared: bool = False,
        pictures: Mapping[str, bytes] | None = None,
    ) -> None:
        """Record that an open episode finished, with its calls, before the finish is acknowledged.

        ``prepared``: its calls are there since ``record_prepared``. ``pictures``: those that its calls name, by digest.

        Raises:
            StateError: the journal has no open episode of that id.
        """
        finished = _End(EpisodeState.FINISHED, reward, metrics, "", "", ended_at)
        self._end(episode_id, finished, calls, details, pictures, prepared=prepared)

    def record_end(
        self,
        episode_id: str,
        *,
        state: EpisodeState,
        reason: str,
        ended_at: float,
        calls: Sequence[CallRecord] = (),
        details: EpisodeDetails | None = None,
        dropped: str = "",
        prepared: bool = False,
        pictures: Mapping[str, bytes] | None = None,
    ) -> None:
        """Record that an open episode was aborted or expired; ``dropped`` is the FateReason of what it sampled.

        Raises:
            StateError: the journal has no open episode of that id.
        """
        lost = _End(state, None, {}, reason, dropped, ended_at)
        self._end(episode_id, lost, calls, details, pictures, prepared=prepared)

    def record_prepared(
        self,
        episode_id: str,
        details: EpisodeDetails,
        calls: Sequence[CallRecord],
        pictures: Mapping[str, bytes] | None = None,
    ) -> None:
        """Record a prepared finish of an open episode with its calls (and the pictures that they name), before it is promised.

        Raises:
            StateError: the journal has no open episode of that id, or it is prepared already.
        """
        self._ends += 1
        with self._db.transaction():
            values = (pack_details(details), self._ends, len(calls), episode_id)
            if self._db.execute(_PREPARE, values) != 1:
                raise _not_open(episode_id)
            if calls:
                self._db.execute(_CALLS, (self._ends, pack_calls(calls)))
            if pictures:
                self._keep_pictures(self._ends, pictures)

    def record_details(self, episode_id: str, details: EpisodeDetails) -> None:
        """Record what changed about an open episode (an agent's key, a prepared finish), before it is acknowledged.

        Raises:
            StateError: the journal has no open episode of that id.
        """
        sql = "UPDATE episodes SET details = ? WHERE episode_id = ? AND state = 'open'"
        if self._db.execute(sql, (pack_details(details), episode_id)) != 1:
            raise _not_open(episode_id)

    def _end(
        self,
        episode_id: str,
        end: _End,
        calls: Sequence[CallRecord],
        details: EpisodeDetails | None,
        pictures: Mapping[str, bytes] | None,
        *,
        prepared: bool,
    ) -> None:
        self._ends += 1
        values = (
            str(end.state),
            end.reward,
            pack(dict(end.metrics)) if end.metrics else None,
            end.reason,
            end.dropped,
            end.ended_at,
            self._ends,
            len(calls),
            pack_details(details or EpisodeDetails()),
            episode_id,
        )
        with self._db.transaction():
            if prepared:
                self._db.execute(_MOVE_CALLS, (self._ends, episode_id))
                self._move_pictures(self._ends, episode_id)
            if self._db.execute(_END, values) != 1:
                raise _not_open(episode_id)
            if calls and not prepared:
                self._db.execute(_CALLS, (self._ends, pack_calls(calls)))
                if pictures:
                    self._keep_pictures(self._ends, pictures)

    def record_eval(self, episode: EpisodeRecord) -> None:
        """Record a whole evaluation episode with its calls and version, granted before or not; sets its ``call_count``. Safe to call twice."""
        self._ends += 1
        episode.call_count = len(episode.calls)
        values = (*episode_values(episode), self._need_run(), self._ends)
        with self._db.transaction():
            self._db.execute(FORGET_CALLS + "episode_id = ?)", (episode.episode_id,))
            self._db.execute(_RECORD, values)
            self._db.execute(_CALLS, (self._ends, pack_calls(episode.calls)))

    def drop_episodes(self, reasons: Mapping[str, str]) -> None:
        """Note for finished episodes (id -> FateReason) that no batch will take them, all in one transaction."""
        with self._db.transaction():
            self._drop(reasons)

    def episode(self, episode_id: str, *, calls: bool = True) -> EpisodeRecord:
        """Return one episode of any incarnation.

        Raises:
            NotFoundError: no such episode.
        """
        found = self._episodes("episode_id = ?", (episode_id,), calls=calls)
        if not found:
            raise NotFoundError(
                f"no episode {episode_id!r}", hint="check the id and the server that granted it"
            )
        return found[0]

    def eval_episodes(
        self,
        *,
        step: int | None = None,
        policy_version: int | None = None,
        task_set: str | None = None,
        calls: bool = False,
    ) -> list[EpisodeRecord]:
        """Return ended evaluation episodes in order of their end, narrowed by what is given."""
        where = "run = ? AND kind = 'eval' AND state != 'open'"
        values: list[Any] = [self._run]
        wanted = {"step": step, "policy_version": policy_version, "task_set": task_set}
        for column, value in wanted.items():
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        return self._episodes(where, values, calls=calls)

    def first_of_groups(self, step: int) -> list[EpisodeRecord]:
        """Return the first granted train episode of each group of status ``step``, without calls: one record a group.

        Reservations that nobody used are passed over (``EpisodeDetails.seated``): their group's number may be another's now.
        """
        granted = self._episodes(
            "run = ? AND kind = 'train' AND step = ?", (self._run, step), calls=False, order="rowid"
        )
        first: dict[str, EpisodeRecord] = {}
        for record in granted:
            if record.details.seated:
                first.setdefault(record.group_id, record)
        return list(first.values())

    def _drop(self, reasons: Mapping[str, str]) -> None:
        self._db.run_many(
            "UPDATE episodes SET dropped = ? WHERE episode_id = ? AND consumed_step IS NULL",
            [(str(reason), episode_id) for episode_id, reason in reasons.items()],
        )

    def _episodes(
        self,
        where: str,
        values: Sequence[Any],
        *,
        calls: bool,
        order: str = "ended_order, rowid",
    ) -> list[EpisodeRecord]:
        body = "(SELECT body FROM calls WHERE calls.ended_order = episodes.ended_order)"
        found = self._db.rows(
            f"SELECT {EPISODE_COLUMNS}, {body if calls else 'NULL'} FROM episodes "  # noqa: S608 - values are bound
            f"WHERE {where} ORDER BY {order}",
            values,
        )
        return [
            self._decode(lambda row: episode_record(row, row[-1]), row, f"episode {row[0]!r}")
            for row in found
        ]


def _not_open(episode_id: str) -> StateError:
    return StateError(
        f"episode {episode_id!r} is not open in the journal",
        hint="an episode is granted once and ends once; ask for a new one",
    )
