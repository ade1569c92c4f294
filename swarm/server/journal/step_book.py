"""The steps of the journal: consumed batches, their metrics, checkpoints, and what of it may be forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swarm.protocol.errors import StateError
from swarm.protocol.messages import CheckpointInfo
from swarm.protocol.records import StepMetrics
from swarm.server.journal.codec import pack, unpack_batch, unpack_verdicts
from swarm.server.journal.episode_book import FORGET_CALLS, EpisodeBook
from swarm.server.journal.picture_book import without_pictures
from swarm.server.journal.records import CallVerdict, CommittedBatch, GroupStats
from swarm.server.ports import TrainBatch


class StepBook(EpisodeBook):
    """Tables ``batches``, ``step_metrics`` and ``checkpoints``; a batch marks the episodes that it consumes."""

    def commit_batch(
        self,
        batch: TrainBatch,
        *,
        episode_ids: Sequence[str],
        groups: Sequence[GroupStats],
        dropped: Mapping[str, str] | None = None,
        verdicts: Mapping[str, Sequence[CallVerdict]] | None = None,
        groups_tried: int = 0,
    ) -> None:
        """Commit "step k consumes these", before the engine moves: rows, episodes, group statistics and leftovers together.

        ``dropped`` maps finished episodes that this step leaves out to their ``FateReason``; ``verdicts`` a consumed episode to
        the fate of each of its calls, for those who read its trace later. A batch without rows is
        committed the same way. The same step twice, or an episode that was already consumed or dropped or never
        finished, is refused and nothing is recorded.

        Raises:
            StateError: an episode cannot be consumed.
        """
        run, step = self._need_run(), batch.step
        committed = CommittedBatch(
            batch=without_pictures(batch),
            episode_ids=list(episode_ids),
            groups=list(groups),
            groups_tried=groups_tried,
        )
        body = pack(committed)
        with self._db.transaction():
            self._db.execute("INSERT INTO batches VALUES (?, ?, ?)", (run, step, body))
            taken = self._db.run_many(
                "UPDATE episodes SET consumed_step = ? WHERE episode_id = ? AND run = ? AND kind = 'train' "
                "AND state = 'finished' AND consumed_step IS NULL AND dropped = ''",
                [(step, episode_id, run) for episode_id in episode_ids],
            )
            if taken != len(episode_ids):
                raise StateError(
                    f"batch {step} names {len(episode_ids)} episodes and only {max(taken, 0)} of them can be consumed",
                    hint="a batch consumes finished train episodes of this run, each once",
                )
            self._drop(dropped or {})
            self._db.run_many(
                "INSERT OR REPLACE INTO verdicts SELECT ended_order, ? FROM episodes WHERE episode_id = ?",
                [(pack(list(calls)), episode_id) for episode_id, calls in (verdicts or {}).items()],
            )

    def verdicts(self, episode_id: str) -> list[CallVerdict]:
        """Return what its batch made of each call of a consumed episode; none when it was not consumed, or was pruned."""
        found = self._db.rows(
            "SELECT body FROM verdicts JOIN episodes USING (ended_order) WHERE episode_id = ?",
            (episode_id,),
        )
        return (
            self._decode(unpack_verdicts, found[0][0], f"episode {episode_id!r}") if found else []
        )

    def step_of(self, episode_id: str) -> StepMetrics | None:
        """Return the record of the step that consumed an episode of any incarnation; None when there is none (yet)."""
        found = self._db.rows(
            "SELECT step_metrics.body FROM step_metrics JOIN episodes "
            "ON episodes.run = step_metrics.run AND consumed_step = step_metrics.step WHERE episode_id = ?",
            (episode_id,),
        )
        return self._parse(StepMetrics, found[0][0]) if found else None

    def batches_after(self, step: int) -> list[TrainBatch]:
        """Return the committed batches of later steps, oldest first."""
        return [committed.batch for committed in self.committed_after(step)]

    def committed_after(self, step: int) -> list[CommittedBatch]:
        """Return the committed batches of later steps with their episodes and groups, oldest first."""
        found = self._db.rows(
            "SELECT step, body FROM batches WHERE run = ? AND step > ? ORDER BY step",
            (self._run, step),
        )
        return [
            self._with_pictures(self._decode(unpack_batch, body, f"batch {number}"))
            for number, body in found
        ]

    def commit_step(self, metrics: StepMetrics) -> None:
        """Record that a step is complete. Safe to call twice: the same step is overwritten (a replayed step is the same)."""
        self._db.execute(
            "INSERT OR REPLACE INTO step_metrics VALUES (?, ?, ?)",
            (self._need_run(), metrics.step, metrics.model_dump_json()),
        )

    def step_metrics(self, after: int = 0) -> list[StepMetrics]:
        """Return the records of steps later than ``after``, oldest first."""
        found = self._db.rows(
            "SELECT body FROM step_metrics WHERE run = ? AND step > ? ORDER BY step",
            (self._run, after),
        )
        return [self._parse(StepMetrics, body) for (body,) in found]

    def record_checkpoint(self, info: CheckpointInfo) -> None:
        """Record a checkpoint whose files are completely written. Safe to call twice."""
        self._db.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)",
            (self._need_run(), info.step, info.policy_version, info.path, info.fingerprint),
        )

    def checkpoints(self) -> list[CheckpointInfo]:
        """Return the recorded checkpoints, oldest first."""
        found = self._db.rows(
            "SELECT step, policy_version, path, fingerprint FROM checkpoints WHERE run = ? ORDER BY step",
            (self._run,),
        )
        names = ("step", "policy_version", "path", "fingerprint")
        return [CheckpointInfo(**dict(zip(names, row, strict=True))) for row in found]

    def prune(self, keep: int) -> list[CheckpointInfo]:
        """Forget all but the newest ``keep`` checkpoints, and what the oldest of those makes unnecessary for resuming.

        Deleted: batches up to that checkpoint, and the calls of train episodes that ended in a step before it, with the
        pictures that no other call names. Kept
        always: episodes themselves, eval records with their calls, metrics, events. Does nothing without a checkpoint.
        Returns the forgotten checkpoints; the caller deletes their folders.
        """
        known = self.checkpoints()
        retained = known[-max(keep, 1) :]
        if not retained:
            return []
        oldest, run = retained[0].step, self._run
        with self._db.transaction():
            self._db.execute("DELETE FROM checkpoints WHERE run = ? AND step < ?", (run, oldest))
            self._db.execute("DELETE FROM batches WHERE run = ? AND step <= ?", (run, oldest))
            self._db.execute(
                "DELETE FROM verdicts WHERE ended_order IN (SELECT ended_order FROM episodes "
                "WHERE run = ? AND consumed_step <= ?)",
                (run, oldest),
            )
            self._db.execute(
                FORGET_CALLS + "run = ? AND kind = 'train' AND (consumed_step <= ? "
                "OR (step < ? AND (dropped != '' OR state IN ('aborted', 'expired')))))",
                (run, oldest, oldest),
            )
            self._forget_pictures()
        return known[: len(known) - len(retained)]
