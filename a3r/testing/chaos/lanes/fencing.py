"""Claims and tokens over the hub's real HTTP, with workers that are a script: whatever two of them do at once, one wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from a3r.core.errors import A3RError, Conflict, HubUnreachable
from a3r.core.types import AttemptState
from a3r.core.wire import AttemptSpec
from a3r.testing.chaos.audit import audit, told_by_workers
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.lane import Play, finish
from a3r.testing.chaos.rig import Rig, Times, rig
from a3r.testing.scripted_worker import ScriptedWorker, rounds_of
from a3r.worker.hub_client import at

TIMES = Times(heartbeat_s=0.5, lease_s=4.0, lost_after_s=2.0)
CROWD = 8
ROUNDS = 8
"""Runs, of each of the two levels."""


def play_fencing(play: Play) -> None:
    """Run after run is fought over, written to with stale tokens, lost and finished twice."""
    seeds = play.times(ROUNDS)
    study = Study(seeds=seeds, steps=3, capacity=1)
    with rig(play.folder, TIMES) as running:
        running.campaign_id = file_campaign(running.store, study, play.folder)
        running.port()
        crowd = [_worker(running, f"w-{n}") for n in range(CROWD)]
        for number in range(2 * seeds):
            spec = _double_claim(play, running, crowd)
            if number % 4 == 0:
                _stale_token(play, running, crowd[0], spec)
            if number % 4 == 1:
                _two_results(play, running, crowd, spec)
            elif number % 4 == 2:
                _killed_after_answer(play, running, crowd[0], spec)
            else:
                _twice(play, running, crowd[0], spec)
        finish(running)
        audit(running, play.outcome.findings, attempts_a_run=3, scripted=True)


def _worker(running: Rig, name: str) -> ScriptedWorker:
    url = f"http://127.0.0.1:{running.port()}"
    worker = ScriptedWorker(at(url, running.workspace.daemon / "worker.token"), name)
    worker.register()
    return worker


def _double_claim(play: Play, running: Rig, crowd: list[ScriptedWorker]) -> AttemptSpec:
    """Everybody asks at the same moment for the one attempt there is."""
    running.wait(
        lambda: any(a.state is AttemptState.QUEUED for a in running.attempts()), "a queued attempt"
    )
    gate = threading.Barrier(len(crowd))

    def ask(worker: ScriptedWorker) -> AttemptSpec | None:
        gate.wait()
        return worker.claim(wait_s=0.5)

    with play.fault("double claim", f"{len(crowd)} workers at once"):
        found: list[AttemptSpec] = []
        while not found:
            with ThreadPoolExecutor(len(crowd)) as pool:
                found = [spec for spec in pool.map(ask, crowd) if spec is not None]
    if len(found) > 1:
        ids = ", ".join(f"{s.attempt_id} (token {s.fencing_token})" for s in found)
        play.outcome.findings.doubled.append(f"several workers were given work at once: {ids}")
    return found[0]


def _stale_token(play: Play, running: Rig, worker: ScriptedWorker, spec: AttemptSpec) -> None:
    """Every kind of write with a token that is not the current one."""
    for token in (spec.fencing_token - 1, spec.fencing_token + 1, 0):
        stale = spec.model_copy(update={"fencing_token": token})
        writes: dict[str, Callable[[], None]] = {
            "events": partial(worker.send_events, stale),
            "steps": partial(worker.send_steps, stale),
            "round": partial(worker.hub.evals, stale.attempt_id, rounds_of(stale)[0]),
            "log": partial(worker.send_log, stale),
            "finish": partial(worker.finish, stale),
        }
        with play.fault("stale fencing token", f"{len(writes)} kinds of writes, a heartbeat"):
            play.outcome.findings.doubled += [
                f"{what} of {spec.attempt_id} were taken under token {token}"
                for what, write in writes.items()
                if not _refused(write)
            ]
            kinds = [c.kind for c in worker.beat(stale).commands]
        if kinds != ["stop_attempt"]:
            play.outcome.findings.wrong.append(f"a stale heartbeat was answered with {kinds}")
    if running.store.steps(spec.attempt_id) or running.store.eval_rounds(spec.attempt_id):
        play.outcome.findings.doubled.append(f"{spec.attempt_id} has evidence of stale tokens")


def _refused(write: Callable[[], None]) -> bool:
    try:
        write()
    except Conflict:
        return True
    return False


def _two_results(play: Play, running: Rig, crowd: list[ScriptedWorker], spec: AttemptSpec) -> None:
    """The first holder falls silent and is given up; then both holders send their result at once."""
    with play.fault("two results at once"):
        worker = crowd[0]
        worker.send_events(spec)
        worker.send_steps(spec)
        for found in rounds_of(spec):
            worker.hub.evals(spec.attempt_id, found)
        running.wait(
            lambda: running.store.attempt(spec.attempt_id).state is AttemptState.LOST,
            "the silent attempt is given up",
        )
        again: list[AttemptSpec] = []

        def claimed() -> bool:
            given = crowd[1].claim()
            again.extend([given] if given is not None else [])
            return bool(again)

        running.wait(claimed, "the run is tried again")
        gate = threading.Barrier(2)

        def late() -> None:
            gate.wait()
            with suppress(Conflict):
                worker.finish(spec)
                text = f"the result of {spec.attempt_id}, which was lost, was accepted"
                play.outcome.findings.doubled.append(text)

        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(late)
            gate.wait()
            crowd[1].play(again[0])
            other.result()


def _killed_after_answer(
    play: Play, running: Rig, worker: ScriptedWorker, spec: AttemptSpec
) -> None:
    """The daemon dies right after each answer: what it acknowledged is there when it is back."""
    with play.fault("kill -9 daemon after its answer", "steps"):
        worker.send_steps(spec)
        running.daemon.kill()
        running.wait(running.answers, "the daemon is back")
        kept = len(running.store.steps(spec.attempt_id))
        if not kept:
            play.outcome.findings.lost.append(f"acknowledged steps of {spec.attempt_id}")
    with play.fault("kill -9 daemon after its answer", "finish"):
        _patiently(running, lambda: worker.play(spec))
        running.daemon.kill()
        running.wait(running.answers, "the daemon is back")
        if running.store.attempt(spec.attempt_id).state is not AttemptState.SUCCEEDED:
            play.outcome.findings.lost.append(f"the acknowledged end of {spec.attempt_id}")


def _twice(play: Play, running: Rig, worker: ScriptedWorker, spec: AttemptSpec) -> None:
    """Everything is sent again, as after lost answers; and then the opposite is claimed."""
    with play.fault("every message twice"):
        worker.play(spec)
        events = told_by_workers(running)[spec.attempt_id]
        worker.play(spec)
        if told_by_workers(running)[spec.attempt_id] != events:
            play.outcome.findings.doubled.append(f"events of {spec.attempt_id} after a repeat")
        if not _refused(lambda: worker.finish(spec, "failed", "it says the opposite now")):
            play.outcome.findings.doubled.append(f"{spec.attempt_id} ended in two ways")


def _patiently(running: Rig, send: Callable[[], None]) -> None:
    def sent() -> bool:
        try:
            send()
        except HubUnreachable:
            return False
        except A3RError as error:
            raise AssertionError(f"the hub refused what is right: {error}") from error
        return True

    running.wait(sent, "the hub takes it")
