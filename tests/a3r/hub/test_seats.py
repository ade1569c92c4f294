"""Two workers under one id: a copied folder brings no second one beside the first."""

from typing import Any

REGISTRATION = {"worker_id": "w1", "host": "gpu1", "pid": 1, "slots": 1}
IDLE = {"worker_id": "w1", "attempts": []}


async def register(study: Any, seat: str, host: str = "gpu1") -> Any:
    body = {**REGISTRATION, "host": host, "inventory": {"seat": seat}}
    return await study.worker("register", body)


async def test_a_copy_is_refused_while_the_first_one_speaks_and_taken_when_it_is_silent(
    study: Any, clock: Any
) -> None:
    assert (await register(study, "first")).status_code == 200
    clock.now += 9
    await study.worker("heartbeat", IDLE)
    clock.now += 9
    refused = await register(study, "copy", "clone")
    assert refused.status_code == 409
    assert "at work on 'gpu1'" in refused.json()["error"]["message"]
    assert "worker.json" in refused.json()["error"]["hint"]
    assert [w.host for w in study.store.workers()] == ["gpu1"]
    clock.now += 2  # a lease after its last word
    assert (await register(study, "copy", "clone")).status_code == 200
    assert (await register(study, "first")).status_code == 409


async def test_a_restart_on_the_same_seat_and_a_worker_that_names_none_are_taken(
    study: Any,
) -> None:
    for _ in range(2):
        assert (await register(study, "first")).status_code == 200
    assert (await study.worker("register", REGISTRATION)).status_code == 200
    assert (await register(study, "any")).status_code == 200


async def test_after_a_start_of_the_daemon_the_one_that_registered_last_has_a_lease_to_come_back(
    study: Any, clock: Any
) -> None:
    assert (await register(study, "first")).status_code == 200
    study.hub.heard.clear()  # as after a start, which is the clock's beginning here
    clock.now += 9
    assert (await register(study, "copy")).status_code == 409
    clock.now += 2
    assert (await register(study, "copy")).status_code == 200
