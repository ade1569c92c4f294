"""Asynchronous mode of the service: rolling goes on during updates, within the bound."""

import asyncio
import itertools
from contextlib import suppress

import pytest

from swarm.protocol.clients import AgreeRequest, ClientRegistration
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import EpisodeGone
from swarm.protocol.messages import EvalRoundClose
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.rolling import Roller, in_update
from swarm.testing.server_fixture import ask, play, reply_to, take, toy_service

S = EngineState
CALL = ChatCall(messages=[{"role": "user", "content": "Compute."}])


async def test_episodes_are_granted_played_and_finished_while_the_weights_move(
    tmp_path, asynchronous
):
    fleet = ToyFleet()
    async with toy_service(tmp_path, asynchronous(), fleet=fleet) as service:
        roller = Roller(service)
        async with in_update(service, fleet, roller):
            status, pool = service.status(), service.pool()
            assert (status.state, status.step, status.policy_version.n) == (S.ROLLING, 0, 0)
            assert (pool.step, pool.episodes_finished) == (1, 0)
            while await roller.one():
                pass
            assert service.pool().groups_complete == 2
            assert service.status().step == 0
            assert "has all" in (await take(service, "more")).reason
        await roller.to_the_end()
        assert not service.status().updating
        first, second, third, last = service.metrics(0)
        assert (first.staleness_mean, first.staleness_max) == (0.0, 0)
        assert (second.staleness_mean, second.staleness_max) == (1.0, 1)
        assert (third.staleness_max, last.staleness_max) == (0, 0)
        assert first.importance_clipped_share == 0.125  # what the toy engine says
        assert [b.overlapped for b in fleet.latest.batches] == [True] * 4


@pytest.mark.parametrize(("workers", "policy"), [(1, "C2"), (5, "C2"), (24, "C3"), (6, "C1")])
async def test_each_step_consumes_what_it_should_and_nothing_is_trained_twice(
    tmp_path, asynchronous, workers, policy
):
    fleet = ToyFleet()
    config = asynchronous(policy=policy, oversample=1.5, stop_at_step=6, max_staleness=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        roller = Roller(service)
        await roller.to_the_end(workers)
        metrics = service.metrics(0)
        assert [m.step for m in metrics] == [1, 2, 3, 4, 5, 6]
        assert all(m.episodes == 6 for m in metrics)
        trained = [row.episode_id for b in fleet.latest.batches for row in b.rows]
        by_step = [{row.episode_id for row in b.rows} for b in fleet.latest.batches]
        assert len(set(trained)) == sum(map(len, by_step))
        assert max(m.staleness_max or 0 for m in metrics) <= 1
        counted = sum(n for m in metrics for n in m.tokens.values())
        assert counted == sum(engine.sampled for engine in fleet.engines)


async def test_what_a_step_leaves_over_trains_in_the_next_one(tmp_path, asynchronous):
    fleet = ToyFleet()
    config = asynchronous(oversample=2.0)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        spare = await take(service, "spare")
        (early,) = await ask(service, spare)
        slow = await take(service, "slow")
        slow_episode = service.episode_for_key(slow.api_key)
        await service.finish(spare.episode_id, FinishRequest(reward=3.0))
        for task in ("a", "b"):
            for _ in range(3):
                await play(service, task)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].episodes_dropped == {}
        pool = service.pool()
        assert (pool.step, pool.episodes_finished, pool.episodes_open) == (1, 1, 1)
        assert {(w.task_id, w.missing) for w in pool.wanted} == {("spare", 2), ("slow", 2)}
        late = await reply_to(service, slow_episode, CALL)
        assert late.policy_version == 1
        reply = await service.finish(slow.episode_id, FinishRequest(reward=0.0))
        assert reply.accepted
        for task in ("spare", "spare", "slow", "slow"):
            assert (await play(service, task, reward=lambda *_: 9.0)).accepted
        await retry_until(lambda: service.status().step == 2)
        second = service.metrics(1)[0]
        assert (second.groups, second.episodes) == (2, 6)
        tokens = {r.episode_id: set(r.versions) for r in fleet.latest.batches[1].rows}
        assert tokens[spare.episode_id] == {0}
        assert tokens[slow.episode_id] == {1}
        assert second.staleness_max == 1
        assert 0 < second.staleness_mean < 1
        assert early.policy_version == 0


async def test_what_would_be_too_old_is_dropped_with_its_reason_and_its_seat_is_free(
    tmp_path, asynchronous
):
    config = asynchronous(oversample=2.0, max_staleness=0, stop_at_step=3)
    async with toy_service(tmp_path, config) as service:
        spare, slow, quiet = [await take(service, t) for t in ("spare", "slow", "quiet")]
        replies = await ask(service, spare) + await ask(service, slow)
        await service.finish(spare.episode_id, FinishRequest(reward=3.0))
        for _ in range(3):
            await play(service, "a")
        for _ in range(2):
            await play(service, "quiet")
        service.episode_for_key(quiet.api_key)
        await service.finish(quiet.episode_id, FinishRequest(reward=1.0))
        await retry_until(lambda: service.status().step == 1)
        first = service.metrics(0)[0]
        assert first.episodes_dropped == {"stale": 2}
        dropped = sum(reply.completion_tokens for reply in replies)
        assert first.tokens["dropped:stale"] == dropped
        with pytest.raises(EpisodeGone, match="max_staleness is 0"):
            service.episode_for_key(slow.api_key)
        late = await service.finish(slow.episode_id, FinishRequest(reward=1.0))
        assert not late.accepted
        assert "policy versions" in late.reason
        assert service.trace(spare.episode_id, calls=True).calls[0].fate_reason == "stale"
        assert service.pool().task_ids == []


async def test_an_episode_that_samples_during_the_update_is_swept_at_the_swap_when_nothing_may_be_stale(
    tmp_path, asynchronous
):
    fleet = ToyFleet()
    config = asynchronous(oversample=2.0, max_staleness=0)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        quiet, talkative, roller = (
            await take(service, "x"),
            await take(service, "y"),
            Roller(service),
        )
        async with in_update(service, fleet, roller):
            await ask(service, talkative)
            refused = await take(service, "more")
            assert (refused.outcome, "max_staleness 0" in refused.reason) == (
                GrantOutcome.WAIT,
                True,
            )
            assert service.pool().wanted == []
        await retry_until(lambda: not service.status().updating)
        with pytest.raises(EpisodeGone, match="max_staleness"):
            service.episode_for_key(talkative.api_key)
        assert (await ask(service, quiet))[0].policy_version == 1


async def test_with_nothing_stale_and_one_client_the_weights_are_those_of_the_synchronous_loop(
    tmp_path, make_config
):
    async def run(name, **asynchronous):
        fleet = ToyFleet()
        config = make_config(stop_at_step=4, every_steps=2, **asynchronous)
        async with toy_service(tmp_path / name, config, fleet=fleet) as service:
            await Roller(service).to_the_end()
            return [m.fingerprint for m in service.metrics(0)], fleet.latest.batches

    synchronous, sync_batches = await run("sync")
    overlapped, async_batches = await run("async", enabled=True, max_staleness=0)
    assert overlapped == synchronous
    for one, two in zip(sync_batches, async_batches, strict=True):
        assert [r.key for r in one.rows] == [r.key for r in two.rows]
        assert [r.logprobs for r in one.rows] == [r.logprobs for r in two.rows]


async def test_a_stream_survives_the_swap_and_its_tokens_keep_their_versions(
    tmp_path, asynchronous
):
    fleet = ToyFleet(lambda _request: "123456")
    async with toy_service(tmp_path, asynchronous(oversample=2.0), fleet=fleet) as service:
        slow, roller = await take(service, "slow"), Roller(service)
        episode = service.episode_for_key(slow.api_key)
        stream = service.answer_stream(episode, CALL)
        async with in_update(service, fleet, roller):
            texts = [(await anext(stream)).text, (await anext(stream)).text]
        rest = [delta async for delta in stream]
        assert "".join(texts + [d.text for d in rest]) == "123456"
        (call,) = service.trace(slow.episode_id, calls=True).calls
        assert call.token_versions == sorted(call.token_versions)
        assert set(call.token_versions) == {0, 1}
        assert call.policy_version == 0
        await service.finish(slow.episode_id, FinishRequest(reward=7.0))
        for _ in range(2):
            assert (await play(service, "slow", reward=lambda *_: 1.0)).accepted
        await roller.until(lambda: service.status().step >= 2)
        trained = {r.episode_id: r.versions for r in fleet.latest.batches[1].rows}
        assert trained[slow.episode_id] == call.token_versions


async def test_an_evaluation_holds_grants_and_weights(tmp_path, asynchronous):
    fleet = ToyFleet()
    config = asynchronous(at_steps=(1,), oversample=2.0)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        spare, roller = [await take(service, "x") for _ in range(3)], Roller(service)
        for grant in spare:
            await ask(service, grant)
        async with in_update(service, fleet, roller):
            assert "evaluation of step 1" in (await take(service, "more")).reason
            with pytest.raises(Exception, match="has not begun"):
                await service.close_eval_round(EvalRoundClose(step=1, planned=1, completed=1))
            early = await take(service, "q", kind=EpisodeKind.EVAL, step=1)
            assert early.outcome is GrantOutcome.WAIT
            assert (await take(service, "q", kind=EpisodeKind.EVAL, step=0)).step == 0
        for reward, grant in enumerate(spare):
            await service.finish(grant.episode_id, FinishRequest(reward=float(reward)))
        evaluated = await take(service, "q", kind=EpisodeKind.EVAL, step=1)
        assert (await ask(service, evaluated))[0].policy_version == 1
        await settle()
        assert not service.status().updating
        await service.close_eval_round(EvalRoundClose(step=1, planned=1, completed=1))
        await roller.to_the_end()
        assert service.metrics(1)[0].eval_round == "closed"


async def test_checkpoints_are_written_while_calls_go_on_and_never_in_the_middle_of_an_update(
    tmp_path, asynchronous
):
    fleet = ToyFleet()
    config = asynchronous(every_steps=1, keep=10)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        roller = Roller(service)
        gate = fleet.latest.save_gate = asyncio.Event()
        await roller.until(lambda: service.status().step == 1)
        await settle()
        assert service.status().state is S.ROLLING
        assert await roller.one()
        gate.set()
        fleet.latest.save_gate = None
        await retry_until(lambda: [c.step for c in service.checkpoints()] == [1])
        async with in_update(service, fleet, roller, step=2):
            asked = asyncio.create_task(service.save_checkpoint())
            await settle()
            assert not asked.done()
        info = await asked
        assert (info.step, info.fingerprint) == (2, service.metrics(1)[0].fingerprint)
        await roller.to_the_end()
        assert [c.step for c in service.checkpoints()] == [1, 2, 3, 4]


async def test_an_update_that_the_engine_undid_is_booked_in_its_own_step(tmp_path, asynchronous):
    fleet = ToyFleet()
    fleet.prepare = lambda engine: engine.roll_back_steps.add(1)
    async with toy_service(tmp_path, asynchronous(), fleet=fleet) as service:
        roller = Roller(service)
        async with in_update(service, fleet, roller):
            for _ in range(6):
                assert await roller.one()
        await roller.to_the_end()
        first, second = service.metrics(0)[:2]
        assert set(first.tokens) == {"masked:rolled_back"}
        assert (first.policy_version, first.staleness_mean) == (0, None)
        assert set(second.tokens) == {"trained"}
        assert (second.policy_version, second.staleness_max) == (1, 0)


async def test_a_changed_configuration_holds_from_the_step_that_opens_next(tmp_path, asynchronous):
    fleet = ToyFleet()
    config = asynchronous()
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        roller = Roller(service)
        async with in_update(service, fleet, roller):
            body = config.model_dump()
            body["optimizer"]["lr"], body["batch"]["tasks"] = 0.5, 1
            await service.configure(type(config).model_validate(body))
        await roller.to_the_end()
        assert [b.lr for b in fleet.latest.batches] == [config.optimizer.lr] * 2 + [0.5] * 2
        assert [m.groups for m in service.metrics(0)] == [2, 2, 1, 1]


async def test_trainers_agree_to_the_step_of_the_pool(tmp_path, asynchronous):
    fleet = ToyFleet()
    config = asynchronous(policy="C5", stop_at_step=3)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        service.register(ClientRegistration(client_id="client"))
        gate = fleet.latest.train_gate = asyncio.Event()

        async def group(task):
            for reward in range(3):
                await play(service, task, reward=lambda *_, reward=reward: float(reward))

        await group("a")
        service.agree("client", AgreeRequest(for_step=0))
        await retry_until(lambda: service.status().updating)
        await group("b")
        assert service.agree("client", AgreeRequest(for_step=service.pool().step)).fires
        gate.set()
        await retry_until(lambda: service.status().step == 2)
        assert [m.agreed for m in service.metrics(0)] == [["client"], ["client"]]
        assert service.metrics(0)[1].staleness_max == 1


async def test_a_mix_stays_exact_when_steps_overlap(tmp_path, asynchronous):
    config = asynchronous(
        tasks=4, repeat=2, oversample=1.5, stop_at_step=6, mix={"a": 0.5, "b": 0.25, "c": 0.25}
    )
    async with toy_service(tmp_path, config) as service:

        async def work(task_set):
            number = itertools.count()
            while service.status().state is not S.TRAINED:
                pool = service.pool()  # a group that misses a member is nobody's but its task's
                wanted = [w.task_id for w in pool.wanted if w.task_set == task_set]
                task = wanted[0] if wanted else f"{task_set}{next(number)}"
                grant = await take(service, task, step=pool.step, task_set=task_set)
                if grant.outcome is GrantOutcome.GRANTED:
                    with suppress(EpisodeGone):
                        await ask(service, grant)
                    reward = float(grant.repeat_index)
                    await service.finish(grant.episode_id, FinishRequest(reward=reward))
                await asyncio.sleep(0.001)

        await asyncio.wait_for(asyncio.gather(*(work(name) for name in "aabc")), 30)
        assert [m.task_sets for m in service.metrics(0)] == [{"a": 2, "b": 1, "c": 1}] * 6


async def test_the_kl_penalty_and_the_learning_rate_travel_in_the_batch(tmp_path, asynchronous):
    fleet = ToyFleet()
    config = asynchronous(algorithm={"kl_coef": 0.1}, optimizer={"lr": 0.25})
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await Roller(service).to_the_end()
        assert {(b.lr, b.kl_coef) for b in fleet.latest.batches} == {(0.25, 0.1)}
        assert {(m.lr, m.kl) for m in service.metrics(0)} == {(0.25, 0.25)}


async def test_a_run_whose_end_was_put_off_overlaps_again(tmp_path, asynchronous):
    fleet, config = ToyFleet(), asynchronous(stop_at_step=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        roller = Roller(service)
        await roller.to_the_end()
        await service.configure(config.model_copy(update={"stop_at_step": 5}))
        async with in_update(service, fleet, roller, step=3):
            assert await roller.one()
        await roller.to_the_end()
        assert [m.step for m in service.metrics(0)] == [1, 2, 3, 4, 5]
        assert service.metrics(3)[0].staleness_max == 1
