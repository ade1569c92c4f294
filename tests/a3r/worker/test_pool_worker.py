"""A worker of a pool: it reports what it had when the cluster wants its machine back, and leaves by itself when idle."""

import os
import threading
from typing import Any

import pytest

from a3r.core.types import FailureClass
from a3r.core.wire import AttemptSpec, ClaimRequest
from a3r.testing.fake_hub import FakeHub
from a3r.testing.waiting import retry_until as until
from a3r.worker.job import WorkerSettings
from a3r.worker.main import Asked, run_worker
from a3r.worker.processes import count_owned
from a3r.worker.worker import Worker


def start(lab: Any, asked: Asked, **options: Any) -> tuple[threading.Thread, list[bool]]:
    result: list[bool] = []

    def work() -> None:
        done = run_worker(
            lab.hub, lab.home, slots=1, environ=os.environ, asked=asked, pool=("p", "pj"), **options
        )
        result.append(done)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, result


@pytest.mark.timeout(90)
def test_at_the_first_signal_its_attempts_end_as_taken_by_the_scheduler(lab: Any) -> None:
    attempt = lab.queue(lab.blueprint(trouble={"0": "hang"}))
    asked = Asked()
    thread, result = start(lab, asked)
    until(lambda: (lab.folder().path / "work" / "client" / "misbehaved.0").exists(), 30)
    asked.signalled(15, None)
    thread.join(40)
    assert result == [True]
    assert (attempt.finish.outcome, attempt.finish.failure) == ("failed", FailureClass.SCHEDULER)
    assert "pool 'p'" in attempt.finish.reason
    assert count_owned(lab.nonce) == 0


def test_it_says_which_job_it_comes_from_and_leaves_when_idle(lab: Any) -> None:
    thread, result = start(lab, Asked(), idle_exit_s=1.0)
    worker = until(lambda: next(iter(lab.hub.workers.values()), None))
    assert (worker.pool, worker.pool_job) == ("p", "pj")
    thread.join(30)
    assert result == [True]


class LateHub(FakeHub):
    """Holds the first claim, and grants it when the worker has already decided to leave."""

    def __init__(self, spec: AttemptSpec) -> None:
        super().__init__()
        self.late, self.asked, self.let_go = spec, threading.Event(), threading.Event()

    def claim(self, request: ClaimRequest) -> AttemptSpec | None:
        self.asked.set()
        self.let_go.wait(20)
        spec, self.late = self.late, None
        return spec if spec is not None else super().claim(request)


@pytest.mark.timeout(90)
def test_an_attempt_that_came_with_the_last_claim_is_not_left_behind(lab: Any) -> None:
    spec = lab.spec(lab.blueprint(trouble={"0": "hang"}))
    hub = LateHub(spec)
    hub.artifacts = lab.hub.artifacts
    hub.queue(spec)
    worker = Worker(WorkerSettings(lab.home, "w-1", "host", 1, 1), hub, None, os.environ)
    worker.start()
    try:
        assert hub.asked.wait(10)
        threading.Timer(0.2, hub.let_go.set).start()
        assert not worker.is_idle_for_good()
        assert worker.attempts() == [spec.attempt_id]
    finally:
        worker.claim_no_more()
        worker.stop_attempts("the test is over")
        worker.leave()
