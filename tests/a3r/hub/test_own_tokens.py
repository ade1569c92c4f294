"""A worker's own token: one worker, its own attempts, until it is revoked."""

from typing import Any

import httpx
import pytest

from a3r.core.errors import Conflict, NotFound
from a3r.store.store import Store

TOKEN = "a-token-of-its-own"


@pytest.fixture
def owned(study: Any) -> Store:
    study.store.add_worker_token("gpu1", TOKEN, 1.0)
    return study.store


async def post(study: Any, path: str, body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return await study.http.post(f"/worker/v1/{path}", json=body, headers=headers)


def registration(worker_id: str, **changes: Any) -> dict[str, Any]:
    return {"worker_id": worker_id, "host": "h", "pid": 1, "slots": 1, **changes}


async def test_a_token_serves_the_worker_that_used_it_first_and_no_other(
    study: Any, owned: Store
) -> None:
    assert (await post(study, "register", registration("w7"))).status_code == 200
    assert (await post(study, "register", registration("w7"))).status_code == 200
    other = await post(study, "register", registration("w8"))
    assert other.status_code == 401
    assert "belongs to worker 'w7'" in other.json()["error"]["message"]
    claim = {"worker_id": "w8", "free_slots": 1, "wait_s": 0}
    assert (await post(study, "claim", claim)).status_code == 401
    assert (await post(study, "heartbeat", {"worker_id": "w8", "attempts": []})).status_code == 401
    assert [t.worker_id for t in owned.worker_tokens()] == ["w7"]


async def test_it_writes_only_to_attempts_that_it_was_given(study: Any, owned: Store) -> None:
    foreign = await study.claimed()  # by w1, with the workspace's token
    await post(study, "register", registration("w7"))
    body = {"fencing_token": foreign.fencing_token, "steps": [{"step": 1}]}
    refused = await post(study, f"attempts/{foreign.attempt_id}/steps", body)
    assert refused.status_code == 401
    study.queue(1)
    claim = {"worker_id": "w7", "free_slots": 1, "wait_s": 0}
    own = (await post(study, "claim", claim)).json()["attempt"]
    body = {"fencing_token": own["fencing_token"], "steps": [{"step": 1}]}
    assert (await post(study, f"attempts/{own['attempt_id']}/steps", body)).status_code == 200


async def test_a_fresh_token_takes_over_nobody(study: Any, owned: Store) -> None:
    await study.claimed()  # by w1, with the workspace's token
    claim = {"worker_id": "w1", "free_slots": 1, "wait_s": 0}
    for path, body in (("claim", claim), ("register", registration("w1"))):
        refused = await post(study, path, body)
        assert refused.status_code == 401
        assert "works with another token" in refused.json()["error"]["message"]
    assert (await post(study, "register", registration("w7"))).status_code == 200
    owned.add_worker_token("gpu2", "another token", 1.0)
    with pytest.raises(Conflict, match="works with another token"):
        owned.bind_worker_token("gpu2", "w7")
    owned.revoke_worker_token("gpu1", 2.0)
    assert owned.bind_worker_token("gpu2", "w7").worker_id == "w7"


async def test_a_fresh_token_takes_over_no_idle_worker_of_the_shared_token(
    study: Any, owned: Store
) -> None:
    shared = {"Authorization": "Bearer worker-token"}
    body = registration("w5")
    reply = await study.http.post("/worker/v1/register", json=body, headers=shared)
    assert reply.status_code == 200
    idle = {"worker_id": "w5", "attempts": []}
    for path, message in (("register", body), ("heartbeat", idle)):
        refused = await post(study, path, message)
        assert refused.status_code == 401
        assert "(the workspace's)" in refused.json()["error"]["message"]
        assert "--workspace" in refused.json()["error"]["hint"]
    assert (await post(study, "register", registration("w7"))).status_code == 200
    # Taken back, its name can be used again by the machine that had it.
    owned.revoke_worker_token("gpu1", 2.0)
    owned.add_worker_token("gpu1", TOKEN + "2", 3.0)
    assert owned.bind_worker_token("gpu1", "w7").worker_id == "w7"


async def test_a_replaced_token_serves_the_same_worker(study: Any, owned: Store) -> None:
    await post(study, "register", registration("w7"))
    study.queue(0)
    await post(study, "claim", {"worker_id": "w7", "free_slots": 1, "wait_s": 0})
    assert owned.replace_worker_token("gpu1", "a newer one", 3.0, "w7").worker_id == "w7"
    assert owned.bind_worker_token("gpu1", "w7").worker_id == "w7"


async def test_a_revoked_token_opens_nothing_and_its_name_can_be_used_again(
    study: Any, owned: Store
) -> None:
    with pytest.raises(Conflict, match="has a token"):
        owned.add_worker_token("gpu1", "another", 2.0)
    owned.revoke_worker_token("gpu1", 3.0)
    assert (await post(study, "register", registration("w7"))).status_code == 401
    owned.add_worker_token("gpu1", "another", 4.0)
    assert owned.worker_token("another") is not None
    with pytest.raises(NotFound):
        owned.revoke_worker_token("nobody", 5.0)


async def test_it_has_no_power_over_campaigns(study: Any, owned: Store) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    reply = await study.http.get("/api/v1/campaigns", headers=headers)
    assert reply.status_code == 401
    assert TOKEN not in (owned.folder / "a3r.db").read_bytes().decode("latin-1")


async def test_another_protocol_is_refused_in_words(study: Any, owned: Store) -> None:
    reply = await post(study, "register", registration("w7", protocol=99))
    assert reply.status_code == 409
    assert "protocol 99" in reply.json()["error"]["message"]
