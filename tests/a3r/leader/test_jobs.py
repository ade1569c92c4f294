"""Long work outside of ticks: taken once, waits out outages, replays after a crash, fails in words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from a3r.core.errors import JobFailed, ModelUnavailable, StoreError
from a3r.core.llm import ModelMessage
from a3r.core.types import CampaignState, JobState, ReviewMode
from a3r.core.workspace import Workspace
from a3r.leader.jobs import FIRST_WAIT_S, MAX_WAIT_S, JobContext, JobRunner, JobThreads
from a3r.store.store import Store
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.script import Answer, said
from a3r.testing.waiting import retry_until


class Word(BaseModel):
    word: str


@dataclass
class HandClock:
    now: float = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def _two_words(context: JobContext) -> dict[str, Any]:
    words = [
        context.desk.ask(f"word-{n}", "plan", [ModelMessage(role="user", content=f"{n}")], Word)
        for n in (1, 2)
    ]
    return {"words": [word.word for word in words], "for": context.job.payload}


def _echo(request: Any) -> Answer:
    return said({"word": f"w{request.messages[-1].content}"})


@dataclass
class Shop:
    """A workspace with one campaign and whatever does its jobs."""

    folder: Path
    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        self.workspace = Workspace.create(self.folder / ".a3r")
        self.store = Store.open(self.workspace.database, self.clock)
        row = self.store.create_campaign(
            "s", "# g", str(self.folder), {}, ReviewMode.STAGE, "llm", self.clock.now
        )
        self.campaign = row.id

    def file(self, subject: str = "1", kind: str = "plan") -> str:
        job_id = f"{self.campaign}/{kind}/{subject}"
        self.store.ensure_job(job_id, self.campaign, kind, {"n": subject}, self.clock.now)
        return job_id

    def runner(self, script: Any = _echo, handler: Any = _two_words, **model: Any) -> JobRunner:
        scripted = script if isinstance(script, ScriptedModel) else ScriptedModel(script, **model)
        handlers = {"plan": handler, "interpret": handler}
        return JobRunner(self.store, self.clock, self.workspace, scripted, handlers)

    def kinds(self) -> list[str]:
        return [e.kind for e in self.store.events(self.campaign) if e.kind.startswith("job_")]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.store.close()


def test_a_job_is_done_once_and_its_result_stays(shop: Shop) -> None:
    job_id = shop.file()
    runner = shop.runner()
    assert (runner.run_all(), runner.run_one()) == (1, False)
    job = shop.store.job(job_id)
    assert (job.state, job.result) == (JobState.DONE, {"words": ["w1", "w2"], "for": {"n": "1"}})
    assert shop.store.ensure_job(job_id, shop.campaign, "plan", {"n": "other"}, 0.0) == job
    assert shop.kinds() == ["job_queued", "job_done"]
    keys = [call.id for call in shop.store.llm_calls(shop.campaign)]
    assert keys == [f"{job_id}/word-1#1", f"{job_id}/word-2#1"]


def test_jobs_are_taken_in_the_order_in_which_they_were_filed(shop: Shop) -> None:
    shop.file("b")
    shop.clock.now += 1
    shop.file("a")
    taken = [shop.store.take_job(shop.clock.now) for _ in range(3)]
    assert [job and job.payload["n"] for job in taken] == ["b", "a", None]


def test_an_outage_of_hours_is_waited_out_ever_more_slowly_and_visibly(shop: Shop) -> None:
    job_id, up = shop.file(), [False]

    def script(request: Any) -> Answer:
        return _echo(request) if up[0] else Answer(status=503, error="the provider is down")

    model = ScriptedModel(script)
    runner, waits, began = shop.runner(model), [], shop.clock.now
    while shop.clock.now < began + 6 * 3600:
        assert runner.run_one()
        job = shop.store.job(job_id)
        assert (job.state, job.detail, job.waiting_since) == (
            JobState.WAITING,
            "the provider is down",
            began,
        )
        waits.append(job.not_before - shop.clock.now)
        assert not runner.run_one(), "not before its time"
        shop.clock.now = job.not_before
    assert waits[:3] == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert max(waits) == MAX_WAIT_S
    assert len(model.asked) < 60
    up[0] = True
    assert runner.run_one()
    assert shop.store.job(job_id).state is JobState.DONE
    assert shop.kinds() == ["job_queued", "job_waiting", "job_done"]


def test_a_retry_after_is_kept_to_and_progress_starts_the_count_anew(shop: Shop) -> None:
    job_id, limited = shop.file(), {"1", "2"}

    def script(request: Any) -> Answer:
        if request.messages[-1].content in limited:
            return Answer(status=429, error="limited", retry_after_s=90.0)
        return _echo(request)

    runner = shop.runner(script)
    for expected in (1, 2):
        runner.run_one()
        job = shop.store.job(job_id)
        assert (job.tries, job.not_before - shop.clock.now) == (expected, 90.0)
        shop.clock.now = job.not_before
    limited.discard("1")
    runner.run_one()
    job = shop.store.job(job_id)
    assert (job.tries, job.waiting_since) == (1, shop.clock.now)


def test_a_crash_replays_what_was_answered_and_pays_for_the_lost_call(shop: Shop) -> None:
    job_id = shop.file()

    def crash(request: Any) -> None:
        if request.messages[-1].content == "2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.runner(before_reply=crash).run_one()
    assert shop.store.job(job_id).state is JobState.RUNNING
    model = ScriptedModel(_echo)
    runner = shop.runner(model)
    runner.recover()
    assert runner.run_all() == 1
    assert shop.store.job(job_id).state is JobState.DONE
    assert [request.messages[-1].content for request in model.asked] == ["2"]
    lost = [c for c in shop.store.llm_calls(shop.campaign) if c.state.value == "failed"]
    assert [(c.id, c.cost_usd) for c in lost] == [(f"{job_id}/word-2#1", lost[0].reserved_usd)]


def test_a_failed_job_says_why_and_a_resume_asks_anew(shop: Shop) -> None:
    job_id = shop.file()
    bad = shop.runner(lambda _: said("no JSON"))
    assert bad.run_all() == 1
    job = shop.store.job(job_id)
    assert job.state is JobState.FAILED
    assert job.result is not None
    assert job.result["code"] == "reply_invalid"
    assert not bad.run_one(), "a failed job is not tried again by itself"
    assert shop.store.requeue_jobs(shop.campaign) == 1
    assert shop.runner().run_all() == 1
    done = shop.store.job(job_id)
    assert (done.state, done.round) == (JobState.DONE, 2)
    assert f"{job_id}@2/word-1#1" in {c.id for c in shop.store.llm_calls(shop.campaign)}


def test_a_resume_after_a_refused_key_replays_what_was_paid_for(shop: Shop) -> None:
    job_id, key = shop.file(), [False]

    def script(request: Any) -> Answer:
        if request.messages[-1].content == "2" and not key[0]:
            return Answer(status=401, error="bad key")
        return _echo(request)

    model = ScriptedModel(script)
    shop.runner(model).run_all()
    assert shop.store.job(job_id).detail == "bad key"
    key[0] = True
    shop.store.requeue_jobs(shop.campaign)
    shop.runner(model).run_all()
    assert shop.store.job(job_id).state is JobState.DONE
    assert [r.messages[-1].content for r in model.asked] == ["1", "2", "2"]


def _raise(error: BaseException) -> Any:
    def handler(_context: JobContext) -> dict[str, Any]:
        raise error

    return handler


def test_an_unexpected_error_fails_the_job_and_the_next_one_is_done(shop: Shop) -> None:
    first = shop.file("1")
    shop.clock.now += 1
    second = shop.file("2", kind="interpret")
    runner = shop.runner(handler=_raise(ZeroDivisionError("boom")))
    runner.handlers = {**runner.handlers, "interpret": _two_words}
    assert runner.run_all() == 2
    assert shop.store.job(first).detail == "ZeroDivisionError: boom"
    assert shop.store.job(second).state is JobState.DONE


@pytest.mark.parametrize("result", [{"x": float("nan")}, {"x": object()}])
def test_a_result_that_is_no_json_fails_the_job(shop: Shop, result: Any) -> None:
    job_id = shop.file()
    shop.runner(handler=lambda _: result).run_all()
    assert shop.store.job(job_id).state is JobState.FAILED


def test_a_kind_that_nobody_knows_fails(shop: Shop) -> None:
    job_id = shop.file(kind="dance")
    shop.runner().run_all()
    assert "dance" in shop.store.job(job_id).detail


def test_a_database_in_trouble_brings_the_job_back_later(shop: Shop) -> None:
    job_id = shop.file()
    runner = shop.runner(handler=_raise(StoreError("disk full")))
    with pytest.raises(StoreError):
        runner.run_one()
    runner.handlers = {"plan": _two_words}
    assert not runner.run_one(), "queued again, but not at once"
    shop.clock.now += 60
    assert runner.run_one()
    assert shop.store.job(job_id).state is JobState.DONE


@pytest.mark.parametrize("state", [CampaignState.BLOCKED, CampaignState.PAUSED])
def test_jobs_of_a_held_campaign_wait(shop: Shop, state: CampaignState) -> None:
    shop.file()
    shop.store.set_campaign_state(shop.campaign, state)
    assert not shop.runner().run_one()
    shop.store.set_campaign_state(shop.campaign, CampaignState.RUNNING)
    assert shop.runner().run_one()


def test_after_a_stop_only_the_last_words_are_spoken(shop: Shop) -> None:
    shop.file()
    last = shop.file("report", kind="interpret")
    shop.store.request_stop(shop.campaign)
    assert shop.runner().run_all() == 1
    assert shop.store.job(last).state is JobState.DONE


def test_the_wall_clock_ends_questions_but_not_the_last_words(shop: Shop) -> None:
    goal = {"budget": {"wall_clock_min": 10}}
    row = shop.store.create_campaign(
        "timed", "# g", str(shop.folder), goal, ReviewMode.STAGE, "llm", shop.clock.now
    )
    shop.campaign = row.id

    def ask(context: JobContext) -> dict[str, Any]:
        message = ModelMessage(role="user", content="1")
        return context.desk.ask("w", context.job.kind, [message], Word).model_dump()

    plan, last = shop.file(), shop.file("report", kind="interpret")
    shop.clock.now += 601
    shop.runner(handler=ask).run_all()
    refused = shop.store.job(plan)
    assert refused.result is not None
    assert refused.result["details"]["limit"] == "wall_clock"
    assert shop.store.job(last).state is JobState.DONE


def test_threads_do_jobs_as_they_are_filed_and_end_when_told(shop: Shop) -> None:
    seen: set[str] = set()
    both = threading.Barrier(2, timeout=20)

    def together(context: JobContext) -> dict[str, Any]:
        both.wait()
        seen.add(threading.current_thread().name)
        return {}

    threads = JobThreads(shop.runner(handler=together), count=2)
    threads.start()
    first, second = shop.file("1"), shop.file("2")
    for job_id in (first, second):
        retry_until(lambda job_id=job_id: shop.store.job(job_id).state is JobState.DONE)
    threads.stop()
    assert seen == {"jobs-0", "jobs-1"}
    shop.file("3")
    assert shop.store.job(f"{shop.campaign}/plan/3").state is JobState.QUEUED


def test_errors_of_jobs_survive_a_pickle() -> None:
    import pickle

    for error in (JobFailed("m", hint="h", job="j"), ModelUnavailable("m", retry_after_s=1.0)):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.details) == (str(error), error.details)


def test_a_resume_of_a_running_campaign_only_hurries_what_waits(shop: Shop) -> None:
    failed, waiting = shop.file("1"), shop.file("2", kind="interpret")
    runner = shop.runner(lambda _: Answer(status=503, error="down"))
    runner.handlers = {"plan": _raise(ZeroDivisionError()), "interpret": _two_words}
    runner.run_all()
    assert shop.store.requeue_jobs(shop.campaign, failed=False) == 1
    assert shop.store.job(failed).state is JobState.FAILED
    assert shop.store.job(waiting).not_before == 0.0
    assert runner.run_one()
