"""What was promised against what was kept: the clients' ledgers beside the server's journal, after everything has ended.

Three questions. Is every episode whose finish was acknowledged as accepted there, with its reward, and consumed? Was any
consumed twice, by the journal's word or by the weights'? Are the weights what the batches make of them, and, where only one
client played, those of a run in which nothing broke?
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarm.protocol.errors import NotFoundError
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.journal.journal import JOURNAL_FILE, Journal
from swarm.server.journal.records import CommittedBatch, EpisodeRecord
from swarm.server.ports import Engine
from swarm.testing.chaos.ledger import Claim


@dataclass(slots=True)
class Findings:
    """What an audit found; all empty = every promise was kept."""

    lost: list[str] = field(default_factory=list[str])
    """Acknowledged episodes that are not where they must be."""
    doubled: list[str] = field(default_factory=list[str])
    """Episodes, seats or batches that were used twice."""
    wrong: list[str] = field(default_factory=list[str])
    """Anything else: gaps in the steps, rewards that nobody sent, other weights."""
    episodes: int = 0
    """Acknowledged ones that were looked at."""
    steps: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.wrong)


def fingerprints(state_dir: Path) -> list[str]:
    """Return the fingerprint after each completed step of a state folder that no server uses."""
    journal = Journal.open(state_dir / JOURNAL_FILE)
    try:
        return [m.fingerprint for m in journal.step_metrics()]
    finally:
        journal.close()


def audit(
    state_dir: Path,
    claims: Mapping[str, Claim],
    *,
    expected: Sequence[str] | None = None,
    engine: Engine | None = None,
) -> Findings:
    """Audit a state folder that no server uses. Its checkpoints must have kept every batch (``checkpoint.keep``).

    Args:
        state_dir: Of the server.
        claims: The ledgers of all its clients together.
        expected: Fingerprint after each step of the undisturbed run, which may be longer; None = not compared.
        engine: A fresh one to train every batch once, from the start, and to compare the weights with; None = not done.
    """
    findings = Findings()
    journal = Journal.open(state_dir / JOURNAL_FILE)
    try:
        batches = journal.committed_after(0)
        _audit_claims(journal, claims, batches, findings)
        _audit_batches(journal, batches, findings)
        _audit_steps(journal, batches, findings)
        _audit_invented(journal, claims, batches, findings)
        if expected is not None:
            _audit_weights(journal, expected, findings)
        if engine is not None:
            asyncio.run(_audit_moves(journal, batches, engine, findings))
    finally:
        journal.close()
    return findings


def _audit_claims(
    journal: Journal,
    claims: Mapping[str, Claim],
    batches: Sequence[CommittedBatch],
    findings: Findings,
) -> None:
    consumed = {i for committed in batches for i in committed.episode_ids}
    state = journal.load_state()
    waiting = {e.episode_id for e in state.pool} if state is not None else set[str]()
    for claim in claims.values():
        if not (claim.answered and claim.accepted):
            continue
        findings.episodes += 1
        why = _missing(journal, claim, consumed | waiting)
        if why:
            findings.lost.append(f"{claim.episode_id}: {why}")


def _missing(journal: Journal, claim: Claim, kept: set[str]) -> str:
    try:
        record = journal.episode(claim.episode_id, calls=False)
    except NotFoundError:
        return "acknowledged, and the journal does not know it"
    if record.state is not EpisodeState.FINISHED:
        return f"acknowledged as finished, and the journal says {record.state.value}"
    if record.reward != claim.reward:
        return f"sent with reward {claim.reward!r}, recorded with {record.reward!r}"
    if record.kind is EpisodeKind.TRAIN and claim.episode_id not in kept:
        return f"accepted, and neither consumed nor waiting ({record.dropped or 'no reason'})"
    return ""


def _audit_batches(journal: Journal, batches: Sequence[CommittedBatch], findings: Findings) -> None:
    times = Counter(i for committed in batches for i in committed.episode_ids)
    findings.doubled += [f"{i} was consumed {n} times" for i, n in times.items() if n > 1]
    seats: dict[tuple[str, int], str] = {}
    for committed in batches:
        rows = Counter(row.key for row in committed.batch.rows)
        findings.doubled += [
            f"row {key} is in batch {committed.batch.step} {n} times"
            for key, n in rows.items()
            if n > 1
        ]
        strangers = {row.episode_id for row in committed.batch.rows} - set(committed.episode_ids)
        findings.wrong += [
            f"batch {committed.batch.step} trains {i} and does not name it"
            for i in sorted(strangers)
        ]
        for episode_id in committed.episode_ids:
            _audit_seat(journal.episode(episode_id, calls=False), committed, seats, findings)


def _audit_seat(
    record: EpisodeRecord,
    committed: CommittedBatch,
    seats: dict[tuple[str, int], str],
    findings: Findings,
) -> None:
    seat = (record.group_id, record.repeat_index)
    other = seats.setdefault(seat, record.episode_id)
    if other != record.episode_id:
        findings.doubled.append(f"seat {seat} was consumed as {other} and as {record.episode_id}")
    if record.consumed_step != committed.batch.step:
        findings.wrong.append(
            f"{record.episode_id} is in batch {committed.batch.step} and says {record.consumed_step}"
        )


def _audit_steps(journal: Journal, batches: Sequence[CommittedBatch], findings: Findings) -> None:
    metrics = journal.step_metrics()
    findings.steps = len(metrics)
    steps = [m.step for m in metrics]
    if steps != list(range(1, len(steps) + 1)):
        findings.wrong.append(f"the step history is {steps}")
    committed = [c.batch.step for c in batches]
    if committed[: len(steps)] != steps:
        findings.wrong.append(f"steps {steps} were recorded and batches {committed} committed")
    versions = [m.policy_version for m in metrics]
    moves = [0, *(v for v in versions)]
    for before, metric in zip(moves, metrics, strict=False):
        if metric.policy_version - before != metric.updated:
            findings.wrong.append(
                f"step {metric.step} went from version {before} to {metric.policy_version}"
            )


def _audit_invented(
    journal: Journal,
    claims: Mapping[str, Claim],
    batches: Sequence[CommittedBatch],
    findings: Findings,
) -> None:
    for committed in batches:
        for episode_id in committed.episode_ids:
            claim = claims.get(episode_id)
            record = journal.episode(episode_id, calls=False)
            if claim is None:
                findings.wrong.append(f"{episode_id} was consumed and no client finished it")
            elif claim.reward != record.reward:
                findings.wrong.append(f"{episode_id} was consumed with a reward that was not sent")


async def _audit_moves(
    journal: Journal, batches: Sequence[CommittedBatch], engine: Engine, findings: Findings
) -> None:
    """Each batch once, on a fresh engine: a batch that moved the run's weights twice, or not at all, shows here."""
    config = journal.config()
    assert config is not None
    fingerprint = (await engine.boot(config)).fingerprint
    recorded = {m.step: m.fingerprint for m in journal.step_metrics()}
    for committed in batches:
        if committed.batch.rows:
            fingerprint = (await engine.train(committed.batch)).fingerprint
        if recorded.get(committed.batch.step, fingerprint) != fingerprint:
            step = committed.batch.step
            findings.wrong.append(f"after step {step} the weights are not what its batch makes")
            break
    await engine.close()


def _audit_weights(journal: Journal, expected: Sequence[str], findings: Findings) -> None:
    found = [m.fingerprint for m in journal.step_metrics()]
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=False), start=1):
        if ours != theirs:
            findings.wrong.append(f"after step {step} the weights are not the undisturbed run's")
            return
    state = journal.load_state()
    asked = state.config.stop_at_step if state is not None else 0
    if len(found) != asked or asked > len(expected):
        findings.wrong.append(
            f"{len(found)} steps of {asked}; the undisturbed run has {len(expected)}"
        )


def audit_pairs(
    pairs: Sequence[Mapping[str, Any]], state_dirs: Mapping[str, Path]
) -> tuple[list[str], int]:
    """Check what two servers made of the same episodes.

    Args:
        pairs: Lines of the clients: ``ids`` (server -> episode id) before each finish, and again when a server ``refused`` it.
        state_dirs: Server -> its state folder, used by nobody.

    Returns:
        What is wrong (an episode that one server refused and another trained on), and how many episodes only one of the
        servers has because the client or its connection was gone between two commits.
    """
    consumed = {name: _consumed(folder) for name, folder in state_dirs.items()}
    wrong: list[str] = []
    split = 0
    for pair in pairs:
        ids: dict[str, str] = pair["ids"]
        takers = [name for name, episode_id in ids.items() if episode_id in consumed[name]]
        if pair["refused"] and takers:
            wrong.append(f"{ids} was refused ({pair['why']}) and trained on by {takers}")
        split += not pair["refused"] and 0 < len(takers) < len(ids)
    return wrong, split


def _consumed(state_dir: Path) -> set[str]:
    journal = Journal.open(state_dir / JOURNAL_FILE)
    try:
        return {i for committed in journal.committed_after(0) for i in committed.episode_ids}
    finally:
        journal.close()
