"""A ticket of a pool job: one exchange for one token, and nothing else."""

from typing import Any

import httpx
import pytest

from a3r.core.pools import PoolJobState, PoolKind, PoolOptions, ticket_name
from a3r.store.rows import PoolJobRow

TICKET = "a-ticket"


@pytest.fixture
def job(study: Any) -> PoolJobRow:
    study.store.add_pool("p", PoolKind.LOCAL, PoolOptions(), 1.0)
    made = study.store.add_pool_job("p", 1.0)
    study.store.add_worker_token(ticket_name(made.id), TICKET, 1.0)
    return made


async def post(study: Any, path: str, body: Any, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return await study.http.post(f"/worker/v1/{path}", json=body, headers=headers)


def registration(job: PoolJobRow, worker: str = "w1") -> dict[str, Any]:
    body = {"worker_id": worker, "host": "node", "pid": 1, "slots": 1}
    return {**body, "pool": job.pool, "pool_job": job.id}


async def exchanged(study: Any, job: PoolJobRow) -> str:
    answer = await post(study, "enlist", {"pool_job": job.id}, TICKET)
    assert answer.status_code == 200
    return answer.json()["token"]


async def test_a_ticket_is_exchanged_for_a_token_with_which_the_worker_comes(
    study: Any, job: PoolJobRow
) -> None:
    token = await exchanged(study, job)
    assert (await post(study, "register", registration(job), token)).status_code == 200
    row = study.store.pool_job(job.id)
    assert (row.state, row.worker_id) == (PoolJobState.WORKING, "w1")
    assert study.store.workers()[0].pool == "p"


async def test_a_ticket_works_once(study: Any, job: PoolJobRow) -> None:
    await exchanged(study, job)
    assert (await post(study, "enlist", {"pool_job": job.id}, TICKET)).status_code == 401


async def test_a_ticket_opens_nothing_else(study: Any, job: PoolJobRow) -> None:
    for path in ("register", "claim", "heartbeat"):
        assert (await post(study, path, registration(job), TICKET)).status_code == 401


async def test_a_ticket_is_good_for_its_own_job_only(study: Any, job: PoolJobRow) -> None:
    other = study.store.add_pool_job("p", 1.0)
    assert (await post(study, "enlist", {"pool_job": other.id}, TICKET)).status_code == 401


async def test_a_ticket_of_a_job_that_is_over_is_refused(study: Any, job: PoolJobRow) -> None:
    study.store.note_pool_job(job.id, PoolJobState.FAILED, 2.0)
    assert (await post(study, "enlist", {"pool_job": job.id}, TICKET)).status_code == 409


async def test_nobody_without_the_jobs_token_comes_as_its_worker(
    study: Any, job: PoolJobRow
) -> None:
    assert (await study.worker("register", registration(job))).status_code == 401
    token = await exchanged(study, job)
    other = study.store.add_pool_job("p", 1.0)
    assert (await post(study, "register", registration(other), token)).status_code == 401
    assert study.store.pool_job(other.id).worker_id is None


async def test_a_worker_that_registers_again_after_the_hub_restarted_is_the_same(
    study: Any, job: PoolJobRow
) -> None:
    token = await exchanged(study, job)
    for _ in range(2):
        assert (await post(study, "register", registration(job), token)).status_code == 200
    assert (await post(study, "register", registration(job, "w2"), token)).status_code == 401


async def test_pools_are_added_shown_and_removed(study: Any) -> None:
    body = {"kind": "local", "options": {"max_workers": 2}}
    made = await study.api("PUT", "pools/p", body)
    assert made.json()["max_workers"] == 2
    assert (await study.api("PUT", "pools/p", body)).json()["created_at"] == made.json()[
        "created_at"
    ]
    study.store.add_pool_job("p", 1.0)
    shown = (await study.api("GET", "pools/p")).json()
    assert (shown["coming"], shown["working"]) == (1, 0)
    other = await study.api("PUT", "pools/p", {"kind": "ray", "options": {}})
    assert other.status_code == 409
    assert (await study.api("POST", "pools/p/remove", {})).json()["state"] == "removing"
    assert (await study.api("GET", "pools/q")).status_code == 404
    assert (await study.api("PUT", "pools/p", {"kind": "x"})).status_code == 400
