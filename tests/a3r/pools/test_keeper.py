"""Workers are asked for when runs wait, once, and what becomes of their jobs is seen, told and cleared up."""

from typing import Any

import pytest

from a3r.core.errors import PoolRefused, PoolUnavailable
from a3r.core.pools import TICKET_VARIABLE, PoolJobState, PoolState, ticket_name, token_name
from a3r.core.types import AttemptState, CampaignState, FailureClass, WorkerState


def test_a_worker_is_asked_for_when_a_run_waits_that_nobody_can_take(cluster: Any) -> None:
    cluster.pool(slots=2, idle_exit_s=33)
    cluster.wait_with(1)
    cluster.look(later_s=1)
    assert cluster.jobs() == []  # a free worker might take it this moment
    cluster.look()
    (job,) = cluster.jobs()
    assert (job.state, job.external_id) == (PoolJobState.QUEUED, f"x-{job.id}")
    (ask,) = cluster.engine.asks
    words = " ".join(ask.argv)
    assert "-m a3r.worker.enlist --hub http://hub" in words
    assert f"--pool-job {job.id}" in words
    assert "--pool p --slots 2 --idle-exit-s 33" in words


def test_a_secret_is_never_on_the_command_line(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (ask,) = cluster.engine.asks
    ticket = ask.env[TICKET_VARIABLE]
    assert ticket not in " ".join(ask.argv)
    assert cluster.store.worker_token(ticket).name == ticket_name(ask.id)


def test_a_job_that_is_on_its_way_is_not_asked_for_again(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    for _ in range(5):
        cluster.look()
    assert len(cluster.jobs()) == 1


def test_no_more_workers_are_asked_for_than_runs_wait_nor_than_the_pool_may_have(
    cluster: Any,
) -> None:
    cluster.pool(max_workers=3, slots=2)
    cluster.wait_with(3)
    cluster.look()
    assert len(cluster.jobs()) == 2
    cluster.wait_with(20, level=2)
    cluster.look()
    cluster.look()
    assert len(cluster.jobs()) == 3


def test_a_campaigns_capacity_bounds_what_is_asked_for(cluster: Any) -> None:
    cluster.pool(max_workers=50)
    row = cluster.store.campaign(cluster.campaign_id)
    cluster.wait_with(row.capacity + 7)
    cluster.look()
    assert len(cluster.jobs()) == min(50, row.capacity)


def test_a_worker_that_lives_and_is_free_is_used_first(cluster: Any) -> None:
    cluster.pool()
    cluster.store.upsert_worker("home", "h", 1, 2, {}, cluster.clock.now)
    cluster.wait_with(2)
    cluster.heard["home"] = cluster.clock.now + 5
    cluster.look()
    assert cluster.jobs() == []
    cluster.look(later_s=120)  # it has fallen silent
    assert len(cluster.jobs()) == 2


def test_a_worker_whose_gpus_are_busy_by_others_does_not_keep_a_run_waiting_for_ever(
    cluster: Any,
) -> None:
    cluster.pool(gpus=1)
    cluster.store.upsert_worker("home", "h", 1, 2, {"gpus": [{}]}, cluster.clock.now)
    cluster.wait_with(1, gpus=1)
    cluster.heard["home"] = cluster.clock.now + 5
    cluster.look()
    assert cluster.jobs() == []
    cluster.heard["home"] = cluster.clock.now + 60
    cluster.look(later_s=60)
    assert len(cluster.jobs()) == 1


def test_runs_that_fit_no_worker_of_any_pool_are_told_of_and_not_asked_for(cluster: Any) -> None:
    cluster.pool(gpus=1)
    cluster.wait_with(1, gpus=2)
    cluster.look()
    assert cluster.jobs() == []
    assert "need more slots or GPUs" in cluster.store.pool("p").detail


def test_a_run_goes_to_the_pool_whose_workers_can_hold_it(cluster: Any) -> None:
    cluster.pool("small")
    cluster.clock.now += 1
    cluster.pool("large", gpus=4)
    cluster.wait_with(1, gpus=4)
    cluster.look()
    assert (len(cluster.jobs("small")), len(cluster.jobs("large"))) == (0, 1)


def test_a_worker_that_comes_from_its_job_is_known_as_the_pools(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    worker = cluster.come(job)
    assert cluster.jobs()[0].state is PoolJobState.WORKING
    assert [w.pool for w in cluster.store.workers() if w.id == worker] == ["p"]


def test_a_worker_that_left_because_it_was_idle_has_ended_well(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    cluster.come(job)
    cluster.store.add_worker_token(token_name(job.id), "t", 1.0)
    cluster.engine.say(job.id, PoolJobState.ENDED)
    cluster.look(later_s=1)
    assert cluster.jobs()[0].state is PoolJobState.ENDED
    assert cluster.store.worker_token("t") is None


def test_what_a_killed_worker_held_is_lost_once_its_lease_is_over_and_the_scheduler_is_named(
    cluster: Any,
) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    attempt = cluster.claim(cluster.come(job))
    cluster.engine.say(job.id, PoolJobState.FAILED, "PREEMPTED")
    cluster.look(later_s=1)
    assert cluster.jobs()[0].detail == "PREEMPTED"
    assert cluster.store.attempt(attempt.id).state is AttemptState.LEASED  # unknown is not dead
    cluster.clock.now += 60
    cluster.store.expire_leases(cluster.clock.now, 0.0)
    cluster.look(later_s=0)
    row = cluster.store.attempt(attempt.id)
    assert (row.state, row.failure) == (AttemptState.LOST, FailureClass.SCHEDULER)
    assert "PREEMPTED" in row.reason


def test_a_silent_worker_whose_job_runs_keeps_what_it_has(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    attempt = cluster.claim(cluster.come(job))
    cluster.clock.now += 60
    cluster.store.expire_leases(cluster.clock.now, 0.0)
    cluster.engine.say(job.id, PoolJobState.STARTING)
    cluster.look()
    assert cluster.store.attempt(attempt.id).state is AttemptState.UNREACHABLE


def test_a_submission_whose_answer_was_lost_is_found_again_and_not_repeated(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.engine.lose_answer = True
    cluster.look()
    assert cluster.jobs()[0].state is PoolJobState.ASKED
    cluster.look(later_s=60)
    (job,) = cluster.jobs()
    assert (job.state, job.external_id) == (PoolJobState.QUEUED, job.id)
    assert len(cluster.engine.asks) == 1


def test_a_job_that_was_on_file_when_the_daemon_died_is_submitted_with_a_new_ticket(
    cluster: Any,
) -> None:
    cluster.pool()
    job = cluster.store.add_pool_job("p", cluster.clock.now)
    cluster.store.add_worker_token(ticket_name(job.id), "old", cluster.clock.now)
    cluster.look()
    (ask,) = cluster.engine.asks
    assert ask.id == job.id
    assert cluster.store.worker_token("old") is None


def test_an_engine_that_is_away_is_told_of_and_asked_ever_more_rarely(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.engine.trouble = PoolUnavailable("connection refused")
    for _ in range(30):
        cluster.look()
    assert "connection refused" in cluster.store.pool("p").detail
    assert len(cluster.jobs()) == 1
    cluster.engine.trouble = None
    cluster.look(later_s=700)
    assert [j.state for j in cluster.jobs()] == [PoolJobState.QUEUED]
    assert cluster.store.pool("p").detail == ""


def test_an_engine_that_refuses_makes_the_job_fail_with_its_words(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.engine.trouble = PoolRefused("invalid partition 'gpu'")
    cluster.look()
    assert cluster.jobs()[0].state is PoolJobState.FAILED
    assert "invalid partition" in cluster.store.pool("p").detail


def test_jobs_that_bring_no_worker_are_followed_by_single_tries_with_growing_pauses(
    cluster: Any,
) -> None:
    cluster.pool(max_workers=5)
    cluster.wait_with(5)
    for _ in range(60):
        cluster.look()
        for job in cluster.jobs(live=True):
            cluster.engine.say(job.id, PoolJobState.ENDED)  # as when a3r is missing there
    assert 5 < len(cluster.jobs()) < 14
    assert "brought no worker" in cluster.store.pool("p").detail
    assert all("never came" in j.detail for j in cluster.jobs())
    before = len(cluster.jobs())
    cluster.pool(max_workers=5)  # a person has mended it
    cluster.look()
    assert len(cluster.jobs()) == before + 5


def test_a_job_that_runs_without_its_worker_coming_is_ended(cluster: Any) -> None:
    cluster.pool(start_timeout_s=100)
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    cluster.engine.say(job.id, PoolJobState.STARTING)
    cluster.look()
    cluster.look(later_s=99)
    cluster.look()
    assert cluster.engine.stopped == [f"x-{job.id}"]
    assert "reach the hub" in cluster.jobs()[0].detail


def test_a_job_that_waits_at_the_engine_is_withdrawn_when_nothing_needs_it_any_more(
    cluster: Any,
) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    cluster.store.set_campaign_state(cluster.campaign_id, CampaignState.PAUSED)
    cluster.look()
    assert cluster.engine.stopped == []
    cluster.look(later_s=60)
    assert cluster.engine.stopped == [f"x-{job.id}"]
    assert cluster.jobs()[0].state is PoolJobState.ENDED


def test_a_removed_pool_lets_its_workers_finish_and_is_gone_after_them(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(2)
    cluster.look()
    first, second = cluster.jobs()
    worker = cluster.come(first)
    cluster.store.set_pool_state("p", PoolState.REMOVING, cluster.clock.now)
    cluster.look()
    assert cluster.engine.stopped == [f"x-{second.id}"]
    assert cluster.store.wanted_of(worker) is WorkerState.REMOVED
    assert cluster.store.pool("p").state is PoolState.REMOVING
    cluster.engine.say(first.id, PoolJobState.ENDED)
    cluster.look()
    cluster.look()
    assert cluster.store.pools() == []
    cluster.pool()
    assert cluster.store.pool("p").state is PoolState.ACTIVE


def test_a_pool_that_is_removed_at_once_has_its_jobs_ended(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    (job,) = cluster.jobs()
    cluster.come(job)
    cluster.store.set_pool_state("p", PoolState.ENDING, cluster.clock.now)
    cluster.look()
    assert cluster.engine.stopped == [f"x-{job.id}"]


def test_a_job_that_the_engine_has_forgotten_has_failed(cluster: Any) -> None:
    cluster.pool()
    cluster.wait_with(1)
    cluster.look()
    cluster.engine.jobs.clear()
    cluster.look(later_s=1)
    assert cluster.jobs()[0].state is PoolJobState.FAILED


@pytest.mark.parametrize("name", ["one", "two"])
def test_one_pool_in_trouble_does_not_hold_up_the_others(cluster: Any, name: str) -> None:
    for other in ("one", "two"):
        cluster.pool(other, slots=1 if other != name else 2)
    cluster.store.add_pool_job(name, cluster.clock.now)
    broken, well = type(cluster.engine)(), cluster.engine
    broken.trouble = PoolUnavailable("away")
    cluster.keeper.engine_of = lambda pool: broken if pool.name == name else well
    cluster.wait_with(3)
    cluster.look()
    other = "two" if name == "one" else "one"
    assert len(cluster.jobs(other)) >= 1
    assert cluster.store.pool(name).detail != ""
