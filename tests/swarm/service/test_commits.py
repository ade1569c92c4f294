"""Prepare, then commit: what was promised is taken, whatever happens in between."""

import asyncio
import shutil

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.episodes import AbortRequest, AgentKeyRequest, CallTokens, FinishRequest
from swarm.protocol.errors import EpisodeGone, JournalFailed, NotFoundError, RewardError, StateError
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState
from swarm.server.service.calls import ChatCall
from swarm.server.service.commits import COMMIT_WITHIN_S
from swarm.testing import ManualClock, ToyFleet, retry_until, settle
from swarm.testing.server_fixture import BASE_URL, ask, play, reply_to, take, toy_service

S = EngineState


async def prepared(service, task="a", reward=1.0, **more):
    """An episode with one call whose finish is prepared."""
    grant = await take(service, task)
    await ask(service, grant)
    promise = await service.prepare(grant.episode_id, FinishRequest(reward=reward, **more))
    assert promise.prepared
    return grant


async def fill(service, task, rewards):
    for reward in rewards:
        await play(service, task, reward=lambda *_, reward=reward: reward)


async def test_what_was_prepared_is_finished_by_commit_once(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await prepared(service, metrics={"x": 2.0})
        assert service.pool().episodes_finished == 0
        assert service.trace(grant.episode_id, calls=False).reward is None
        first = await service.commit(grant.episode_id)
        assert (first.accepted, first.state) == (True, EpisodeState.FINISHED)
        assert await service.commit(grant.episode_id) == first
        assert await service.finish(grant.episode_id, FinishRequest(reward=9.0)) == first
        trace = service.trace(grant.episode_id, calls=True)
        assert (trace.reward, trace.metrics, len(trace.calls)) == (1.0, {"x": 2.0}, 1)
        assert service.pool().episodes_finished == 1
        record = service._core.journal.episode(grant.episode_id)
        assert (record.reward, record.call_count, len(record.calls)) == (1.0, 1, 1)


async def test_a_second_prepare_keeps_the_first_and_its_promise(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        grant = await prepared(service, reward=1.0)
        await clock.advance(10.0)
        again = await service.prepare(grant.episode_id, FinishRequest(reward=2.0))
        assert again.prepared
        assert again.commit_within_s == pytest.approx(COMMIT_WITHIN_S - 10.0)
        # A plain finish ends it with what was prepared: that was the first word.
        assert (await service.finish(grant.episode_id, FinishRequest(reward=3.0))).accepted
        assert service.trace(grant.episode_id, calls=False).reward == 1.0
        told = await service.prepare(grant.episode_id, FinishRequest(reward=1.0))
        assert (told.prepared, told.commit_within_s) == (True, 0.0)


async def test_a_prepare_that_is_refused_leaves_the_episode_open(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        for request in (
            FinishRequest(),
            FinishRequest(reward=float("nan")),
            FinishRequest(reward=1.0, tokens=[CallTokens(call_index=5, mask=[True])]),
        ):
            with pytest.raises(RewardError):
                await service.prepare(grant.episode_id, request)
        with pytest.raises(StateError, match="not prepared"):
            await service.commit(grant.episode_id)
        await ask(service, grant)
        assert (await service.finish(grant.episode_id, FinishRequest(reward=1.0))).accepted
        for action in (
            service.prepare("ep-none", FinishRequest(reward=1.0)),
            service.commit("ep-none"),
        ):
            with pytest.raises(NotFoundError):
                await action


async def test_a_prepared_episode_takes_no_calls_and_no_agents_and_ends_those_that_are_pending(
    tmp_path, make_config
):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        fleet.latest.hold = asyncio.Event()
        pending = asyncio.create_task(ask(service, grant))
        await settle()
        await service.prepare(grant.episode_id, FinishRequest(reward=1.0))
        with pytest.raises(EpisodeGone, match="prepared"):
            await asyncio.wait_for(pending, 5)
        assert fleet.latest.generating == 0
        fleet.latest.hold = None
        episode = service.episode_for_key(grant.api_key)
        with pytest.raises(EpisodeGone, match="prepared"):
            await reply_to(service, episode, ChatCall(messages=[{"role": "user", "content": "x"}]))
        with pytest.raises(EpisodeGone, match="prepared"):
            service.agent_key(grant.episode_id, AgentKeyRequest(agent="late"), base_url=BASE_URL)
        assert (await service.commit(grant.episode_id)).accepted
        assert service.trace(grant.episode_id, calls=True).call_count == 1


async def test_a_prepared_episode_that_is_aborted_is_gone(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await prepared(service)
        answer = await service.abort(grant.episode_id, AbortRequest(reason="b refused"))
        assert (answer.state, answer.reason) == (EpisodeState.ABORTED, "b refused")
        late = await service.commit(grant.episode_id)
        assert (late.accepted, late.reason) == (False, "b refused")
        again = await take(service, "a")
        assert (again.group_id, again.repeat_index) == (grant.group_id, grant.repeat_index)
        told = await service.prepare(grant.episode_id, FinishRequest(reward=1.0))
        assert (told.prepared, told.reason) == (False, "b refused")


async def test_a_promise_that_nobody_keeps_ends_and_is_counted_as_not_committed(
    tmp_path, make_config
):
    clock = ManualClock()
    config = make_config(tasks=1, repeat=2, stop_at_step=1, idle_deadline_s=5.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        grant = await prepared(service)
        await clock.advance(COMMIT_WITHIN_S - 1)  # far beyond the idle deadline
        assert service.status().open_episodes == 1
        await clock.advance(1.5)
        late = await service.commit(grant.episode_id)
        assert (late.accepted, late.state) == (False, EpisodeState.EXPIRED)
        assert "promise of 30 s" in late.reason
        await fill(service, "a", (0.0, 1.0))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.episodes_dropped == {"not_committed": 1}
        assert set(metrics.tokens) == {"dropped:not_committed", "trained"}
        assert service.trace(grant.episode_id, calls=True).calls[0].fate_reason == "not_committed"


async def test_a_drain_waits_for_a_promise_and_for_nobody_else(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=1, repeat=2, oversample=2.0, stop_at_step=1, drain_deadline_s=5.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        kept, slow = await prepared(service, "b"), await take(service, "b")
        await fill(service, "a", (0.0, 1.0))
        await retry_until(lambda: service.status().state is S.ROLLING_POST)
        await clock.advance(6.0)
        assert service.trace(slow.episode_id, calls=False).reason == "leftover"
        assert service.status().state is S.ROLLING_POST
        await clock.advance(10.0)
        assert service.status().state is S.ROLLING_POST
        answer = await service.commit(kept.episode_id)
        assert answer.accepted
        await retry_until(lambda: service.status().step == 1)
        # Taken, and then left over: the group that it was in is not complete.
        assert service.metrics(0)[0].episodes_dropped == {"leftover": 2}


async def test_a_drain_ends_when_the_promise_does(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=1, repeat=2, oversample=2.0, stop_at_step=1, drain_deadline_s=5.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        kept = await prepared(service, "b")
        await fill(service, "a", (0.0, 1.0))
        await retry_until(lambda: service.status().state is S.ROLLING_POST)
        await clock.advance(COMMIT_WITHIN_S + 1)
        await retry_until(lambda: service.status().step == 1)
        assert not (await service.commit(kept.episode_id)).accepted
        assert service.metrics(0)[0].episodes_dropped == {"not_committed": 1}


async def test_a_promise_outlives_its_clients_lease_and_restart(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        lease = service.register(ClientRegistration(client_id="client"))
        await clock.advance(lease.lease_s - 10.0)
        grant, open_one = await prepared(service), await take(service, "b")
        await clock.advance(20.0)
        service._core.clients.get("client").lease_end = 0.0
        await clock.advance(1.0)
        assert service.trace(open_one.episode_id, calls=False).state is EpisodeState.ABORTED
        service.register(ClientRegistration(client_id="client"))
        assert (await service.commit(grant.episode_id)).accepted


@pytest.mark.parametrize("rule", ["resample", "drop"])
async def test_a_commit_is_taken_although_the_group_was_dropped_meanwhile(
    tmp_path, make_config, rule
):
    config = make_config(tasks=2, repeat=2, stop_at_step=1, group_rule=rule)
    async with toy_service(tmp_path, config) as service:
        grant, lost = await prepared(service), await take(service, "a")
        await service.abort(lost.episode_id, AbortRequest())
        assert (await service.commit(grant.episode_id)).accepted
        await fill(service, "b", (0.0, 1.0))
        if rule == "resample":
            await fill(service, "c", (0.0, 1.0))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.episodes_dropped == {"episode_aborted": 1, "group_dropped": 1}
        assert service.pool().episodes_open == 0


async def test_a_stop_leaves_the_promise_and_a_start_takes_the_commit(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant, open_one = await prepared(service), await take(service, "a")
        await service.stop()
        assert service.trace(open_one.episode_id, calls=False).state is EpisodeState.ABORTED
        assert service.status().open_episodes == 1
        assert (await service.commit(grant.episode_id)).accepted
        await service.start()
        assert service.pool().episodes_finished == 1
        await fill(service, "a", (0.0,))
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].episodes == 2


async def test_a_new_run_ends_what_was_prepared_for_the_old_one(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await prepared(service)
        await service.stop()
        await service.configure(make_config(seed=5))
        late = await service.commit(grant.episode_id)
        assert (late.accepted, "new run" in late.reason) == (False, True)
        await service.start()
        assert service.pool().episodes_finished == 0
        assert (await take(service, "a")).repeat_index == 0


async def test_an_eval_episode_can_be_prepared_and_committed(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "held-out", kind=EpisodeKind.EVAL)
        await ask(service, grant)
        assert (await service.prepare(grant.episode_id, FinishRequest())).prepared
        assert (await service.commit(grant.episode_id)).accepted
        assert service.trace(grant.episode_id, calls=True).calls[0].fate_reason == "eval"


async def test_a_commit_that_cannot_be_recorded_can_be_tried_again(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await prepared(service)
        database = service._core.journal._db
        database.execute(
            "PRAGMA query_only = 1"
        )  # what SQLite answers on a file that it may only read
        with pytest.raises(JournalFailed):
            await service.commit(grant.episode_id)
        database.execute("PRAGMA query_only = 0")
        assert service.status().open_episodes == 1
        assert (await service.commit(grant.episode_id)).accepted
        assert service.trace(grant.episode_id, calls=False).reward == 1.0


# -- across a restart of the server -------------------------------------------------------------------------


async def test_a_killed_server_keeps_its_promise_when_it_resumes(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    clock = ManualClock()
    async with toy_service(tmp_path / "one", config, clock=clock) as service:
        own = [CallTokens(call_index=0, weights=[2.0] * 99)]
        grant = await take(service, "a")
        (reply,) = await ask(service, grant)
        own[0].weights[:] = [2.0] * reply.completion_tokens
        request = FinishRequest(reward=1.0, metrics={"x": 1.0}, tokens=own)
        assert (await service.prepare(grant.episode_id, request)).prepared
        lost = await take(service, "a")
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
    clock = ManualClock()
    fleet = ToyFleet()
    async with toy_service(tmp_path / "two", resume=True, clock=clock, fleet=fleet) as service:
        with pytest.raises(EpisodeGone, match="restarted"):
            service.episode_for_key(lost.api_key)
        await clock.advance(COMMIT_WITHIN_S - 1)  # the promise began anew
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("a", 1)]
        assert (await service.commit(grant.episode_id)).accepted
        assert (await service.commit(grant.episode_id)).accepted
        await fill(service, "a", (0.0,))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.episodes, metrics.episodes_dropped) == (2, {})
        weights = [row.weights for row in fleet.latest.batches[0].rows]
        assert [2.0] * reply.completion_tokens in weights
        trace = service.trace(grant.episode_id, calls=True)
        assert (trace.reward, trace.metrics, trace.calls[0].fate) == (1.0, {"x": 1.0}, "trained")


async def test_a_server_that_shut_down_in_order_keeps_its_promise_too(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant = await prepared(service)
        granted_at = service.trace(grant.episode_id, calls=False).granted_at
    clock = ManualClock(start=granted_at)
    await clock.advance(500.0)  # the server was away
    async with toy_service(tmp_path, resume=True, clock=clock) as service:
        assert service.pool().episodes_open == 1
        await clock.advance(20.0)
        (shown,) = service.monitor.overview().running
        assert (shown.age_s, shown.idle_s) == (pytest.approx(520.0), pytest.approx(20.0))
        await clock.advance(COMMIT_WITHIN_S - 19)
        late = await service.commit(grant.episode_id)
        assert (late.accepted, late.state) == (False, EpisodeState.EXPIRED)
    async with toy_service(tmp_path, resume=True) as service:
        trace = service.trace(grant.episode_id, calls=True)
        assert trace.calls[0].fate_reason == "not_committed"
        assert not (await service.commit(grant.episode_id)).accepted
        assert service._core.ledger.token_counts()["dropped:not_committed"] > 0


async def test_a_commit_whose_answer_a_crash_lost_is_answered_the_same_after_it(
    tmp_path, make_config
):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path / "one", config) as service:
        grant = await prepared(service)
        assert (await service.commit(grant.episode_id)).accepted
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
    async with toy_service(tmp_path / "two", resume=True) as service:
        assert (await service.commit(grant.episode_id)).accepted
        assert service.pool().episodes_finished == 1


async def test_a_killed_server_resumes_with_an_eval_episode_that_was_prepared(
    tmp_path, make_config
):
    async with toy_service(tmp_path / "one", make_config()) as service:
        grant = await take(service, "held-out", kind=EpisodeKind.EVAL)
        assert (await service.prepare(grant.episode_id, FinishRequest())).prepared
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
    async with toy_service(tmp_path / "two", resume=True) as service:
        second = await take(service, "held-out", kind=EpisodeKind.EVAL)
        assert (grant.repeat_index, second.repeat_index) == (0, 1)
        assert (await service.commit(grant.episode_id)).accepted


async def test_a_repeated_finish_is_answered_as_the_first_when_the_step_left_it_out(
    tmp_path, make_config
):
    config = make_config(policy="C3", tasks=1, repeat=1, max_groups_factor=1, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant = await take(service, "a")
        first = await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        await retry_until(lambda: service.status().state is S.TRAINED)
    async with toy_service(tmp_path, resume=True) as service:
        again = await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        assert (first.accepted, again.accepted) == (True, True)
        assert again.reason == "zero_advantage"
