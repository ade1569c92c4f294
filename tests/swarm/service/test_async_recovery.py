"""Asynchronous mode when engines and servers die: the same steps, and the pool that was collected beside an update."""

import asyncio
import shutil

import pytest

from swarm.protocol.episodes import FinishRequest
from swarm.protocol.states import EngineState
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.rolling import Roller, in_update
from swarm.testing.server_fixture import ask, play, take, toy_service

S = EngineState
CALL = ChatCall(messages=[{"role": "user", "content": "Compute."}])


async def test_a_stream_goes_on_after_the_engine_died_under_other_weights(tmp_path, asynchronous):
    fleet = ToyFleet(lambda _request: "123456")
    async with toy_service(tmp_path, asynchronous(oversample=2.0), fleet=fleet) as service:
        slow, roller = await take(service, "slow"), Roller(service)
        episode = service.episode_for_key(slow.api_key)
        stream = service.answer_stream(episode, CALL)
        first = await anext(stream)
        await roller.until(lambda: service.status().step >= 1)
        fleet.latest.kill()
        rest = [delta async for delta in stream]
        (call,) = service.trace(slow.episode_id, calls=True).calls
        assert rest[-1].final.token_ids == call.sampled_ids
        assert call.token_versions[0] == 0 < call.token_versions[-1]
        whole = "".join([first.text, *(d.text for d in rest)])
        assert rest[-1].final.message["content"] == whole == "1123456"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_engine_killed_around_an_overlapped_update_makes_the_same_step(
    tmp_path, asynchronous, when
):
    async def run(name, traps):
        fleet = ToyFleet()
        config = asynchronous(max_staleness=0, every_steps=2)
        async with toy_service(tmp_path / name, config, fleet=fleet) as service:
            fleet.latest.die_in_train.update(traps)
            await Roller(service).to_the_end()
            return [m.fingerprint for m in service.metrics(0)], service.status().engine_restarts

    calm, _ = await run("calm", {})
    assert await run("shaken", {3: when}) == (calm, 1)


async def test_an_engine_killed_during_an_update_keeps_the_pool_that_was_collected_beside_it(
    tmp_path, asynchronous
):
    fleet = ToyFleet()
    async with toy_service(tmp_path, asynchronous(), fleet=fleet) as service:
        roller = Roller(service)
        fleet.latest.train_gate = asyncio.Event()
        await roller.until(lambda: service.status().updating)
        for _ in range(4):
            assert await roller.one()
        first = fleet.latest
        first.kill()
        first.train_gate.set()
        await retry_until(lambda: service.status().step == 1)
        assert service.status().engine_restarts == 1
        assert service.pool().episodes_finished == 4
        await roller.to_the_end()
        assert [m.episodes for m in service.metrics(0)] == [6] * 4


async def test_a_server_killed_in_an_overlapped_update_resumes_with_it_and_with_the_pool_beside_it(
    tmp_path, asynchronous
):
    fleet = ToyFleet()
    config = asynchronous(oversample=1.5, every_steps=2)
    async with toy_service(tmp_path / "one", config, fleet=fleet) as service:
        roller = Roller(service)
        async with in_update(service, fleet, roller):
            for _ in range(4):
                assert await roller.one()
            lost = await take(service, roller.next_task())
            await ask(service, lost)
            pool = service.pool()
            left = tmp_path / "two"
            await asyncio.to_thread(shutil.copytree, tmp_path / "one", left)
        whole = service.metrics(0)[0]
    async with toy_service(left, resume=True) as service:
        await retry_until(lambda: service.status().step == 1)
        resumed = service.metrics(0)[0]
        same = ("fingerprint", "tokens", "calls", "episodes", "groups", "reward_mean", "rows")
        assert [getattr(resumed, k) for k in same] == [getattr(whole, k) for k in same]
        again = service.pool()
        assert (again.step, again.episodes_finished) == (1, pool.episodes_finished)
        assert set(again.task_ids) == set(pool.task_ids)
        late = await service.finish(lost.episode_id, FinishRequest(reward=1.0))
        assert not late.accepted
        roller = Roller(service)
        await roller.to_the_end()
        metrics = service.metrics(0)
        assert [m.episodes for m in metrics] == [6] * 4
        assert metrics[1].staleness_max == 1
        assert metrics[1].episodes_dropped.get("episode_aborted") is None


async def test_a_server_killed_with_carried_episodes_resumes_with_them(tmp_path, asynchronous):
    fleet = ToyFleet()
    config = asynchronous(oversample=2.0, max_staleness=2)
    async with toy_service(tmp_path / "one", config, fleet=fleet) as service:
        spare = await take(service, "spare")
        await ask(service, spare)
        await service.finish(spare.episode_id, FinishRequest(reward=3.0))
        for task in ("a", "b"):
            for _ in range(3):
                await play(service, task)
        await retry_until(lambda: service.status().step == 1)
        before = service.pool()
        assert before.episodes_finished == 1
        left = tmp_path / "two"
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", left)
    async with toy_service(left, resume=True) as service:
        again = service.pool()
        assert (again.episodes_finished, again.wanted) == (1, before.wanted)
        for task in ("spare", "spare", "c", "c", "c"):
            assert (await play(service, task, reward=lambda *_: 9.0)).accepted
        await retry_until(lambda: service.status().step == 2)
        assert service.metrics(1)[0].staleness_max == 1


async def test_an_engine_stopped_in_an_update_completes_it_after_the_start_and_counts_it_once(
    tmp_path, asynchronous
):
    async def run(name, *, stop):
        fleet = ToyFleet()
        config = asynchronous(max_staleness=1)
        async with toy_service(tmp_path / name, config, fleet=fleet) as service:
            roller = Roller(service)
            async with in_update(service, fleet, roller):
                for _ in range(3):
                    assert await roller.one()
                if stop:
                    await service.stop()
                    assert service.status().state is S.OFFLINE
                    starting = asyncio.create_task(service.start())
                    await settle()
            if stop:
                await starting
            assert service.pool().episodes_finished == 3
            await roller.to_the_end()
            return [(m.fingerprint, m.tokens, m.calls) for m in service.metrics(0)][:2]

    assert await run("stopped", stop=True) == await run("whole", stop=False)
