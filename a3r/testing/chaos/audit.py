"""What was promised against what is there, when a lane's campaign is over: in the database, on the workers' disks, in the process table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from a3r.core.types import TERMINAL_ATTEMPTS, AttemptState, CampaignState, RunState
from a3r.report.export import records_from_store
from a3r.report.records import Records
from a3r.report.verify import verify
from a3r.store.rows import AttemptRow
from a3r.testing.chaos.findings import Findings
from a3r.testing.chaos.rig import Rig
from a3r.worker.folder import AttemptFolder, session_name
from a3r.worker.processes import count_owned

PROC = Path("/proc")


def audit(
    rig: Rig,
    findings: Findings,
    *,
    attempts_a_run: int = 1,
    marks: Sequence[str] = (),
    cancelled: Collection[str] = (),
    scripted: bool = False,
) -> None:
    """Audit a rig whose campaign is over and whose workers have nothing left to send.

    Args:
        rig: the lane's world, its daemon still up.
        findings: what is found is added there.
        attempts_a_run: as many as the lane's faults may cost; more means that one was given up without need.
        marks: texts of the command lines of processes that tried to get away.
        cancelled: runs that the lane cancelled.
        scripted: the workers were a script and kept nothing on disk.
    """
    records = records_from_store(rig.store, rig.campaign_id)
    attempts = rig.store.attempts(rig.campaign_id)
    findings.runs += len(records.runs)
    _runs(records, attempts, findings, attempts_a_run, cancelled)
    _plans(records, findings)
    if not scripted:
        _evidence(rig, attempts, findings)
    _report(rig, findings)
    _returned(rig, attempts, findings)
    for mark in marks:
        findings.kept += [f"pid {pid} got away ({mark})" for pid in with_mark(mark)]
    findings.foreign += rig.bystanders.harmed()
    findings.bystanders += len(rig.bystanders)


def _runs(
    records: Records,
    attempts: Sequence[AttemptRow],
    findings: Findings,
    most: int,
    cancelled: Collection[str],
) -> None:
    cells = Counter((run.blueprint_id, run.seed) for run in records.runs)
    planned = {(b.id, seed) for b in records.blueprints for seed in b.seeds}
    findings.lost += [f"there is no run of {b} with seed {s}" for b, s in planned - set(cells)]
    findings.doubled += [f"{n} runs of {b} with seed {s}" for (b, s), n in cells.items() if n > 1]
    of_run: dict[str, list[AttemptRow]] = {}
    for attempt in attempts:
        of_run.setdefault(attempt.run_id, []).append(attempt)
    for run in records.runs:
        own = of_run.get(run.id, [])
        good = [a.id for a in own if a.state is AttemptState.SUCCEEDED]
        if run.id in cancelled:
            if run.state != RunState.CANCELLED or good:
                findings.wrong.append(f"run {run.id} was cancelled and is {run.state}")
        elif run.state != RunState.SUCCEEDED or run.accepted_attempt not in good:
            findings.lost.append(f"run {run.id} is {run.state}: {run.reason or 'no reason'}")
        if len(good) > 1:
            findings.doubled.append(f"run {run.id} has the results {', '.join(good)}")
        if len(own) > most:
            why = "; ".join(f"{a.state.value}: {a.reason}" for a in own)
            findings.lost.append(f"run {run.id} took {len(own)} attempts ({why})")


def _plans(records: Records, findings: Findings) -> None:
    twice = {
        "stage": Counter(str(s.ordinal) for s in records.stages),
        "blueprint": Counter(b.content_hash for b in records.blueprints),
        "decision": Counter(f"{d.stage_id} {d.what}" for d in records.decisions),
    }
    for noun, counts in twice.items():
        findings.doubled += [
            f"{noun} {key} is there {n} times" for key, n in counts.items() if n > 1
        ]


def _evidence(rig: Rig, attempts: Sequence[AttemptRow], findings: Findings) -> None:
    """What a worker wrote down of an accepted attempt, beside what the hub has of it."""
    events = told_by_workers(rig)
    for attempt in attempts:
        folder = rig.folder(attempt.id)
        if attempt.state is not AttemptState.SUCCEEDED:
            continue
        if folder is None:
            findings.wrong.append(f"attempt {attempt.id} has no folder")
            continue
        there = [int(s["step"]) for s in folder.steps()]
        here = [int(s["step"]) for s in rig.store.steps(attempt.id)]
        _compare(attempt.id, "steps", there, here, findings)
        rounds = {p.stem.removeprefix("eval-") for p in folder.evals.glob("eval-*.json")}
        known = [r.name for r in rig.store.eval_rounds(attempt.id)]
        _compare(attempt.id, "rounds", sorted(rounds), sorted(known), findings)
        written = len(folder.events())
        if events[attempt.id] != written:
            kind = findings.lost if events[attempt.id] < written else findings.doubled
            kind.append(f"attempt {attempt.id}: {written} events there, {events[attempt.id]} here")
        _logs(rig, attempt.id, folder, findings)


def told_by_workers(rig: Rig) -> Counter[str]:
    """Attempt -> how many events of its worker the hub has."""
    events: Counter[str] = Counter()
    after = 0
    while page := rig.store.events(rig.campaign_id, after):
        after = page[-1].seq
        events.update(e.attempt_id for e in page if e.attempt_id and e.actor != "store")
    return events


def _compare(
    attempt_id: str, what: str, there: Sequence[object], here: Sequence[object], findings: Findings
) -> None:
    if list(there) == list(here):
        return
    kind = findings.doubled if len(here) > len(there) else findings.lost
    kind.append(f"attempt {attempt_id}: {what} {list(there)} at the worker, {list(here)} here")


def _logs(rig: Rig, attempt_id: str, folder: AttemptFolder, findings: Findings) -> None:
    for path in sorted((folder.path / "logs").glob("*.log")):
        mine = rig.store.log_path(attempt_id, path.stem)
        size = mine.stat().st_size if mine.exists() else 0
        if size != path.stat().st_size:
            findings.lost.append(
                f"attempt {attempt_id}: {path.name} has {path.stat().st_size} bytes there, {size} here"
            )


def _report(rig: Rig, findings: Findings) -> None:
    row = rig.store.campaign(rig.campaign_id)
    if row.state is not CampaignState.DONE:
        findings.lost.append(f"the campaign is {row.state.value}: {row.failure}")
        return
    reports = [
        p for p in (rig.workspace.project / "reports").iterdir() if not p.name.startswith(".")
    ]
    if len(reports) != 1:
        findings.doubled.append(f"{len(reports)} reports")
    for path in reports:
        checked = verify(path, rig.store)
        if not checked.ok:
            findings.wrong.append(f"the report does not verify: {checked}")


def _returned(rig: Rig, attempts: Sequence[AttemptRow], findings: Findings) -> None:
    for attempt in attempts:
        if attempt.state not in TERMINAL_ATTEMPTS:
            findings.kept.append(f"attempt {attempt.id} is {attempt.state.value}")
        left = count_owned(attempt.nonce)
        if left:
            findings.kept.append(f"attempt {attempt.id} left {left} processes")
    findings.kept += [
        f"{lease.resource} of {lease.worker_id} is leased to {lease.attempt_id}"
        for lease in rig.store.leases()
    ]
    shown = set(rig.tmux("list-sessions", "-F", "#{session_name}").split())
    findings.kept += [
        f"the tmux session {session_name(a.id)} is still there"
        for a in attempts
        if session_name(a.id) in shown
    ]


def with_mark(mark: str) -> list[int]:
    """Pids of living processes that have ``mark`` as an argument."""
    found: list[int] = []
    for path in PROC.glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
