"""The registry of clients: leases, restarts, figures, and what is kept of a client for good."""

from __future__ import annotations

import pytest

from swarm.protocol.clients import ClientRegistration, TaskCursor
from swarm.protocol.episodes import AbortRequest, FinishRequest, GrantRequest
from swarm.protocol.errors import ClientReplaced, NotFoundError, StateError
from swarm.protocol.states import EpisodeKind, EpisodeState, GrantOutcome, Role
from swarm.server.journal.journal import Journal
from swarm.server.service.client_notes import ClientNotes
from swarm.server.service.clients import Clients
from swarm.testing import ManualClock
from swarm.testing.server_fixture import BASE_URL, ask, play_step, take, toy_service

pytestmark = pytest.mark.every_engine


def registration(client_id="client", **more) -> ClientRegistration:
    return ClientRegistration(client_id=client_id, **more)


async def grant(service, client_id="client", **more):
    request = GrantRequest(client_id=client_id, task_id=more.pop("task_id", "a"), **more)
    return await service.grant(request, base_url=BASE_URL)


def state_of(service, grant) -> EpisodeState:
    return service.trace(grant.episode_id, calls=False).state


async def test_the_same_instance_registering_again_is_no_restart(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(), clock=ManualClock()) as service:
        service.register(registration(instance="life-1"))
        held = await grant(service, instance="life-1")
        service.register(registration(instance="life-1"))
        assert state_of(service, held) is EpisodeState.OPEN
        service.register(registration(instance="life-2"))
        assert state_of(service, held) is EpisodeState.ABORTED


async def test_a_client_that_comes_back_after_its_lease_keeps_what_it_took_since(
    tmp_path, make_config
):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        lease = service.register(registration(instance="life-1"))
        lost = await grant(service, instance="life-1")
        await clock.advance(lease.lease_s + 1)
        assert state_of(service, lost) is EpisodeState.ABORTED
        # Its loop asks before its heartbeat notices that the lease is gone.
        taken = await grant(service, instance="life-1", task_id="b")
        service.register(registration(instance="life-1"))
        assert state_of(service, taken) is EpisodeState.OPEN


async def test_a_replaced_client_gets_no_more_episodes(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(), clock=ManualClock()) as service:
        service.register(registration(instance="old"))
        service.register(registration(instance="new"))
        with pytest.raises(ClientReplaced) as caught:
            await grant(service, instance="old")
        assert caught.value.status == 409
        with pytest.raises(ClientReplaced):
            service.heartbeat("client", "old")
        assert service.heartbeat("client", "new").client_id == "client"
        assert (await grant(service, instance="new")).outcome is GrantOutcome.GRANTED
        # Whoever names no instance is not told apart.
        assert (await grant(service, task_id="b")).outcome is GrantOutcome.GRANTED


async def test_the_episodes_of_several_clients_are_lost_with_their_leases(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=3)
    async with toy_service(tmp_path, config, clock=clock) as service:
        grants = []
        for name in ("a", "b", "c"):
            service.register(registration(name))
            grants.append(await grant(service, name, task_id=name))
        lease_s = service.heartbeat("c").lease_s
        await clock.advance(lease_s / 2)
        service.heartbeat("c")
        await clock.advance(lease_s / 2 + 1)
        states = [state_of(service, one) for one in grants]
        assert states == [EpisodeState.ABORTED, EpisodeState.ABORTED, EpisodeState.OPEN]
        assert [info.client_id for info in service.clients()] == ["c"]
        everyone = service.clients(gone=True)
        assert [(i.client_id, i.failed, i.lease_left_s > 0) for i in everyone] == [
            ("c", 0, True),
            ("a", 1, False),
            ("b", 1, False),
        ]
        with pytest.raises(NotFoundError):
            service.heartbeat("a")


async def test_figures_say_what_a_client_did(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        service.register(registration(code_hash="abc", role=Role.TRAINER))
        for _ in range(2):
            one = await grant(service)
            replies = await ask(service, one)
            await clock.advance(3.0)
            await service.finish(one.episode_id, FinishRequest(reward=1.0))
            assert replies
        [info] = service.clients()
        assert (info.finished, info.failed, info.open, info.calls) == (2, 0, 0, 2)
        assert (info.code_hash, info.latency_mean_s) == ("abc", 3.0)
        assert info.sampled_tokens >= 2
        assert info.registered_at == clock.time() - 6.0


async def test_aborted_and_expired_episodes_are_failures_and_open_ones_are_counted(
    tmp_path, make_config
):
    clock = ManualClock()
    config = make_config(tasks=2, repeat=2, idle_deadline_s=5.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        service.register(registration())
        first, second = await grant(service), await grant(service)
        assert service.clients()[0].open == 2
        await service.abort(first.episode_id, AbortRequest(reason="no"))
        await service.abort(first.episode_id, AbortRequest(reason="no"))
        await clock.advance(6.0)
        assert state_of(service, second) is EpisodeState.EXPIRED
        [info] = service.clients()
        assert (info.open, info.finished, info.failed) == (0, 0, 2)
        assert info.latency_mean_s is None


async def test_what_a_step_consumed_is_booked_for_whoever_played_it(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=2)) as service:
        service.register(registration())
        accepted = await play_step(service, 2)
        await play_step(service, 1)
        [info] = service.clients()
        assert info.contributed == 2 * accepted == 8


async def test_an_episode_that_the_step_left_behind_is_nobodys_failure(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        service.register(registration())
        await take(service, "x", kind=EpisodeKind.EVAL)
        await service.stop()
        [info] = service.clients()
        assert (info.open, info.failed) == (0, 0)


def test_what_is_known_of_clients_without_a_lease_is_bounded():
    clients = Clients(ManualClock(), 60.0, keep_gone=3)
    for i in range(10):
        clients.asks(GrantRequest(client_id=f"c{i}", task_id="a"))
    clients.asks(GrantRequest(client_id="c7", task_id="a"))
    clients.register(registration("c9"))
    found = [info.client_id for info in clients.infos({}, gone=True)]
    assert found == ["c9", "c8", "c7"]
    assert [c.client_id for c in clients.live(Role.TRAINER)] == ["c9"]
    assert clients.live(Role.EVALUATOR) == []


# --- what is kept for good ---------------------------------------------------------------------------------------


def cursor(position=0, **more) -> TaskCursor:
    return TaskCursor(task_set=more.pop("task_set", "math"), position=position, **more)


async def test_a_cursor_survives_the_server_and_ends_with_the_run(tmp_path, make_config):
    config = make_config()
    async with toy_service(tmp_path, config) as service:
        service.register(registration())
        service.set_cursor("client", cursor(4, data_seed=7, step=1))
        service.set_cursor("client", cursor(9, task_set="code"))
    async with toy_service(tmp_path, resume=True) as service:
        lease = service.register(registration())
        assert lease.cursor == cursor(9, task_set="code")
        assert lease.cursors == [cursor(9, task_set="code"), cursor(4, data_seed=7, step=1)]
        assert service.clients()[0].cursor == lease.cursor
        await service.stop()
        await service.configure(make_config(seed=99))
        assert service.heartbeat("client").cursors == []


async def test_a_grant_carries_the_cursor_and_never_moves_it_back(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        service.register(registration())
        await grant(service, cursor=cursor(2, task_set="default"))
        await grant(service, cursor=cursor(1, task_set="default"))
        assert service.heartbeat("client").cursor == cursor(2, task_set="default")
        # Another order begins where it says.
        await grant(service, cursor=cursor(1, task_set="default", data_seed=3))
        assert service.heartbeat("client").cursor == cursor(1, task_set="default", data_seed=3)
        # So does a client that says so.
        service.set_cursor("client", cursor(0, task_set="default", data_seed=3))
        assert service.heartbeat("client").cursor == cursor(0, task_set="default", data_seed=3)


async def test_a_request_that_was_not_granted_leaves_the_cursor(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        service.register(registration())
        waiting = await grant(service, step=5, cursor=cursor(3))
        assert waiting.outcome is GrantOutcome.WAIT
        assert service.heartbeat("client").cursor is None


async def test_a_cursor_needs_a_lease_and_a_run(tmp_path, make_config):
    async with toy_service(tmp_path) as service:
        service.register(registration())
        with pytest.raises(StateError):
            service.set_cursor("client", cursor(1))
        await service.configure(make_config())
        with pytest.raises(NotFoundError):
            service.set_cursor("stranger", cursor(1))
        assert service.set_cursor("client", cursor(1)).cursor == cursor(1)


def test_notes_are_bounded_in_memory_and_complete_in_the_journal(tmp_path):
    journal = Journal.open(tmp_path / "journal.sqlite")
    notes = ClientNotes(journal, keep=2)
    for i in range(5):
        notes.set_owner(f"c{i}", "eval" if i % 2 else "client")
        notes.tell(f"c{i}", cursor(i), "run-1")
    assert [notes.owner(f"c{i}") for i in range(5)] == [
        "client",
        "eval",
        "client",
        "eval",
        "client",
    ]
    assert notes.cursor("c0", "run-1") == cursor(0)
    assert notes.cursor("c0", "run-2") is None
    assert notes.owner("nobody") == ""
    assert len(notes._notes) == 2
    journal.close()
