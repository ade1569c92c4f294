"""Groups never mix versions of the clients' code; what nobody plays any more makes room, and says so."""

import asyncio
import shutil

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.episodes import AbortRequest, FinishRequest, GrantRequest
from swarm.protocol.states import EpisodeState, GrantOutcome
from swarm.server.service.code_versions import LIMIT
from swarm.testing import ManualClock, retry_until, settle
from swarm.testing.server_fixture import BASE_URL, ask, toy_service

pytestmark = pytest.mark.every_engine


async def take(service, task="a", code="", client="one", **more):
    request = GrantRequest(client_id=client, task_id=task, code_hash=code, **more)
    return await service.grant(request, base_url=BASE_URL)


async def play(service, task="a", code="", client="one", reward=1.0):
    grant = await take(service, task, code, client)
    assert grant.outcome is GrantOutcome.GRANTED, grant.reason
    await ask(service, grant)
    assert (await service.finish(grant.episode_id, FinishRequest(reward=reward))).accepted
    return grant


def register(service, client="one", code=""):
    return service.register(ClientRegistration(client_id=client, code_hash=code))


async def events(service, kind):
    return [e.data for e in service._core.journal.events_after(0) if e.kind == kind]


async def test_episodes_of_two_versions_of_one_task_are_two_groups(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=2)) as service:
        old, new, plain = [
            await take(service, "a", code, client)
            for code, client in (("v1", "x"), ("v2", "y"), ("v1", "z"))
        ]
        assert [g.group_id for g in (old, new, plain)] == ["s0.g0", "s0.g1", "s0.g0"]
        wanted = [(w.task_id, w.missing, w.code_hash) for w in service.pool().wanted]
        assert wanted == [("a", 1, "v2")]
        assert service.trace(old.episode_id, calls=False).code_hash == "v1"


async def test_the_version_of_the_registration_holds_unless_the_request_has_its_own(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config()) as service:
        register(service, code="v1")
        first, own = await take(service), await take(service, code="v2")
        hashes = [service.trace(g.episode_id, calls=False).code_hash for g in (first, own)]
        assert hashes == ["v1", "v2"]


@pytest.mark.parametrize("half", ["finish", "prepare"])
async def test_a_finish_by_another_version_is_not_accepted_and_the_seat_is_free_again(
    tmp_path, make_config, half
):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant = await take(service, code="v1")
        await ask(service, grant)
        request = FinishRequest(reward=1.0, code_hash="v2")
        if half == "finish":
            answer = await service.finish(grant.episode_id, request)
            assert (answer.accepted, answer.state) == (False, EpisodeState.ABORTED)
        else:
            answer = await service.prepare(grant.episode_id, request)
            assert not answer.prepared
        assert answer.reason.startswith("code_changed: granted to code 'v1', finished by code 'v2'")
        repeat = await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        assert (repeat.accepted, repeat.reason) == (False, answer.reason)
        (event,) = await events(service, "code_changed")
        assert (event["old"], event["new"]) == ("v1", "v2")
        again = await take(service, code="v1")
        assert again.repeat_index == grant.repeat_index
        await ask(service, again)
        same = FinishRequest(reward=1.0, code_hash="v1")
        assert (await service.finish(again.episode_id, same)).accepted
        await play(service, code="v1", reward=0.0)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.episodes_dropped == {"code_changed": 1}
        assert "dropped:code_changed" in metrics.tokens


async def half_and_whole(service):
    """A step's first group complete, its second begun, both by version v1; nothing of it is open."""
    register(service, code="v1")
    for reward in (0.0, 1.0):
        await play(service, "a", reward=reward)
    await play(service, "b")


@pytest.mark.parametrize("code_change", ["keep", "discard"])
async def test_a_restart_with_new_code_keeps_or_discards_finished_groups_and_drops_half_ones(
    tmp_path, make_config, code_change
):
    config = make_config(tasks=2, repeat=2, stop_at_step=1, code_change=code_change)
    async with toy_service(tmp_path, config) as service:
        await half_and_whole(service)
        register(service, code="v2")
        assert service.pool().groups_complete == 1  # nothing happens until it asks
        await play(service, "b", reward=0.0)
        kept = code_change == "keep"
        assert service.pool().groups_complete == (1 if kept else 0)
        (event,) = await events(service, "code_replaced")
        assert (event["old"], event["new"], event["task_set"]) == ("v1", "v2", "default")
        counts = (event["groups_kept"], event["groups_dropped"], event["episodes_dropped"])
        assert counts == ((1, 1, 1) if kept else (0, 2, 3))
        await play(service, "b", reward=1.0)
        if not kept:
            for reward in (0.0, 1.0):
                await play(service, "c", reward=reward)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.groups == 2
        assert metrics.episodes_dropped == {"code_changed": 1 if kept else 3}


async def test_a_version_that_is_still_played_stays_and_the_other_one_waits(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        lease = register(service, "old", "v1")
        await play(service, "a", client="old")
        register(service, "new", "v2")
        assert "opened all the groups" in (await take(service, "a", client="new")).reason
        waiting = asyncio.create_task(take(service, "a", client="new", wait_s=60))
        for _ in range(3):  # it lives, though it asks for nothing
            await clock.advance(lease.lease_s / 4)
            for name in ("old", "new"):
                service.heartbeat(name)
        assert not waiting.done()
        service.heartbeat("new")
        await clock.advance(lease.lease_s / 2)
        service.heartbeat("new")
        await clock.advance(lease.lease_s / 2 + 1)
        answer = await waiting
        if answer.outcome is GrantOutcome.WAIT:  # its own time may have ended first
            answer = await take(service, "a", client="new")
        assert (answer.outcome, answer.group_id) == (GrantOutcome.GRANTED, "s0.g1")


async def test_open_episodes_keep_their_version_in_use(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=1, repeat=2, idle_deadline_s=1e4)
    async with toy_service(tmp_path, config, clock=clock) as service:
        first = await take(service, "a", "v1", "raw")  # a client that never registers
        await clock.advance(500.0)
        assert (await take(service, "a", "v2", "other")).outcome is GrantOutcome.WAIT
        await service.abort(first.episode_id, AbortRequest())
        assert (await take(service, "a", "v2", "other")).outcome is GrantOutcome.GRANTED


async def test_a_client_that_changes_its_code_without_a_restart_is_waited_for_one_lease(
    tmp_path, make_config
):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        lease = register(service, code="v1")
        await play(service, "a")
        assert (await take(service, "a", "v2")).outcome is GrantOutcome.WAIT
        service.heartbeat("one")
        await clock.advance(lease.lease_s / 2)
        service.heartbeat("one")
        await clock.advance(lease.lease_s / 2 + 1)
        assert (await take(service, "a", "v2")).outcome is GrantOutcome.GRANTED


async def test_two_programs_on_their_own_task_sets_never_disturb_each_other(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=2, repeat=2, code_change="discard")
    async with toy_service(tmp_path, config, clock=clock) as service:
        register(service, "math", "m1")
        request = GrantRequest(client_id="math", task_id="a", task_set="math")
        grant = await service.grant(request, base_url=BASE_URL)
        await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        await clock.advance(100.0)  # its lease is over
        await play(service, "b", "c1", "code")
        assert service.pool().groups_open == 2
        assert await events(service, "code_replaced") == []


async def test_under_the_rule_drop_a_change_of_code_does_not_shrink_the_step_also_after_a_restart(
    tmp_path, make_config
):
    config = make_config(tasks=2, repeat=2, stop_at_step=1, group_rule="drop")
    async with toy_service(tmp_path / "one", config) as service:
        await half_and_whole(service)
        register(service, code="v2")
        await play(service, "b", reward=0.0)
        assert service._core.pool.target == 2
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
    async with toy_service(tmp_path / "two", resume=True) as service:
        assert service._core.pool.target == 2
        assert service._core.ledger.episodes_dropped == {"code_changed": 1}
        register(service, code="v2")
        await play(service, "b", reward=1.0)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].groups == 2


async def test_what_a_restarted_server_finds_of_an_older_version_makes_room_too(
    tmp_path, make_config
):
    config = make_config(tasks=1, repeat=2, code_change="discard")
    async with toy_service(tmp_path, config) as service:
        register(service, code="v1")
        await play(service, "a")
    async with toy_service(tmp_path, resume=True) as service:
        register(service, code="v2")
        grant = await take(service, "a")
        assert (grant.outcome, grant.group_id) == (GrantOutcome.GRANTED, "s0.g1")
        assert service.trace(grant.episode_id, calls=False).code_hash == "v2"
        await settle()
        assert service._core.ledger.episodes_dropped == {"code_changed": 1}


async def test_what_is_remembered_of_a_client_that_changes_its_code_all_the_time_is_bounded(
    tmp_path, make_config
):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=2, repeat=2), clock=clock) as service:
        register(service)
        versions = service._grants._versions
        for i in range(2 * LIMIT):
            versions.note(GrantRequest(client_id="one", task_id="a", code_hash=f"v{i}"))
            if i % 100 == 0:
                await clock.advance(30)
                service.heartbeat("one")
        assert len(versions._order) <= LIMIT
        assert len(versions._uses["one"].asked) <= 300  # those of one lease's time
        assert versions._in_use(f"v{2 * LIMIT - 1}")
        assert not versions._in_use("v0")
