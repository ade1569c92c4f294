import asyncio

import pytest

from swarm.protocol.config import EvalGate, TrainConfig
from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import JournalFailed, StateError
from swarm.protocol.messages import EvalRoundClose
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.testing import ManualClock, ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, play_step, take, toy_service

EVAL = EpisodeKind.EVAL


@pytest.mark.every_engine
async def test_the_gate_holds_train_grants_until_the_round_is_closed(tmp_path, make_config):
    config = make_config(at_steps=(0,), stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant = await take(service, "a")
        assert (grant.outcome, "evaluation" in grant.reason) == (GrantOutcome.WAIT, True)
        assert "evaluation of step 0" in service.status().waiting_for
        assert service.pool().groups_to_open == 0
        assert (await take(service, "x", kind=EVAL)).outcome is GrantOutcome.GRANTED
        held = asyncio.create_task(take(service, "a", wait_s=30))
        await settle()
        await service.close_eval_round(EvalRoundClose(step=0, planned=1, completed=1))
        held_grant = await asyncio.wait_for(held, 60)
        assert held_grant.outcome is GrantOutcome.GRANTED
        await ask(service, held_grant)
        await service.finish(held_grant.episode_id, FinishRequest(reward=1.0))
        await play_step(service, 2)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].eval_round == "closed"


@pytest.mark.every_engine
async def test_a_missed_round_opens_the_gate_and_is_never_counted_as_closed(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(at_steps=(0,), deadline_s=30.0, stop_at_step=1)
    async with toy_service(tmp_path, config, clock=clock) as service:
        held = asyncio.create_task(take(service, "a", wait_s=60))
        await settle()
        await clock.advance(29.0)
        assert not held.done()
        await clock.advance(1.5)
        grant = await held
        assert grant.outcome is GrantOutcome.GRANTED
        await service.close_eval_round(EvalRoundClose(step=0, planned=1, completed=1))
        await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].eval_round == "missed"
        kinds = [e.kind async for e in _recorded(service)]
        assert kinds.count("eval_round_missed") == 1


@pytest.mark.every_engine
async def test_an_incomplete_round_opens_the_gate_and_is_recorded_as_incomplete(
    tmp_path, make_config
):
    config = make_config(at_steps=(0,), stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        await service.close_eval_round(EvalRoundClose(step=0, planned=5, completed=4))
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].eval_round == "incomplete"


async def test_eval_goes_on_after_training_with_the_version_of_each_call(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        grant = await take(service, "x", kind=EVAL)
        (before,) = await ask(service, grant)
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.TRAINED)
        (after,) = await ask(service, grant)
        assert (before.policy_version, after.policy_version) == (0, 1)
        await service.finish(grant.episode_id, FinishRequest(reward=0.5))
        calls = service.trace(grant.episode_id, calls=True).calls
        assert [call.policy_version for call in calls] == [0, 1]
        assert (await take(service, "x", kind=EVAL)).outcome is GrantOutcome.GRANTED
        metrics = service.metrics(0)[0]
        assert metrics.episodes == 6
        assert metrics.calls == 12


@pytest.mark.every_engine
async def test_eval_tokens_are_accounted_for_as_never_trained(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        grant = await take(service, "x", kind=EVAL)
        (reply,) = await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest())
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].tokens["dropped:eval"] == reply.completion_tokens


@pytest.mark.every_engine
async def test_the_same_eval_item_sampled_again_after_a_loss_gives_the_same_tokens(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config()) as service:
        first = await take(service, "x", kind=EVAL, client_id="one")
        (reply,) = await ask(service, first)

        await service.abort(first.episode_id, AbortRequest())
        second = await take(service, "x", kind=EVAL, client_id="two")
        (repeat,) = await ask(service, second)
        assert repeat.token_ids == reply.token_ids


async def test_the_optimizer_waits_for_calls_of_eval_and_new_ones_are_held(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(stop_at_step=1), fleet=fleet) as service:
        grant = await take(service, "x", kind=EVAL)
        fleet.latest.hold = gate = asyncio.Event()
        running = asyncio.create_task(ask(service, grant))
        await settle()
        fleet.latest.hold = None
        await play_step_without_waiting(service)
        await retry_until(lambda: service.status().state is EngineState.WEIGHT_SYNCING)
        held = asyncio.create_task(ask(service, await take(service, "x", kind=EVAL)))
        await settle()
        assert service.status().step == 0
        gate.set()
        ((before,), (after,)) = await asyncio.gather(running, held)
        assert (before.policy_version, after.policy_version) == (0, 1)


async def play_step_without_waiting(service):
    for task in ("a", "b"):
        for reward in (0.0, 1.0, 2.0):
            grant = await take(service, task)
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=reward))


async def _recorded(service):
    last = service.events(0)
    marker = service.status().step
    async for event in last:
        yield event
        if event.kind == "step" and event.data["step"] == marker:
            break
    await last.aclose()


async def test_the_gates_deadline_counts_from_the_start_and_not_from_the_configuration(
    tmp_path, make_config
):
    clock = ManualClock()
    async with toy_service(tmp_path, clock=clock) as service:
        await service.configure(make_config(at_steps=(0,), deadline_s=30.0))
        await clock.advance(100.0)
        await service.start()
        await clock.advance(20.0)
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        await clock.advance(11.0)
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_a_round_cannot_be_closed_before_its_step_has_begun(tmp_path, make_config):
    config = make_config(at_steps=(1,), stop_at_step=2)
    async with toy_service(tmp_path, config) as service:
        with pytest.raises(StateError, match="Step 1 has not begun"):
            await service.close_eval_round(EvalRoundClose(step=1, planned=1, completed=1))
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        # The early word opened nothing.
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        await service.close_eval_round(EvalRoundClose(step=1, planned=1, completed=1))
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


@pytest.mark.every_engine
async def test_a_round_of_a_past_step_is_recorded_and_opens_nothing(tmp_path, make_config):
    config = make_config(at_steps=(1,), stop_at_step=2)
    async with toy_service(tmp_path, config) as service:
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        await service.close_eval_round(EvalRoundClose(step=0, planned=1, completed=1))
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT


async def test_every_steps_gates_each_multiple(tmp_path, make_config):
    config = make_config(stop_at_step=4).model_copy(update={"eval_gate": EvalGate(every_steps=2)})
    async with toy_service(tmp_path, config) as service:
        held = []
        for step in range(4):
            grant = await take(service, "probe", step=step)
            if grant.outcome is GrantOutcome.WAIT:
                held.append(step)
                await service.close_eval_round(EvalRoundClose(step=step, planned=1, completed=1))
            else:
                await service.abort(grant.episode_id, AbortRequest())
            await play_step(service, 3)
            await retry_until(lambda: service.status().state is not EngineState.WEIGHT_SYNCING)
        assert held == [0, 2]
        rounds = [m.eval_round for m in service.metrics(0)]
        assert rounds == ["closed", "", "closed", ""]


async def test_the_gates_deadline_stands_still_while_the_server_is_offline(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(at_steps=(0,), deadline_s=30.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        await clock.advance(20.0)
        await service.stop()
        await clock.advance(500.0)
        await service.start()
        await clock.advance(9.0)
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        assert "(or 1 s)" in service.status().waiting_for
        await clock.advance(2.0)
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_the_gates_deadline_stands_still_while_the_engine_is_replaced(tmp_path, make_config):
    clock, fleet = ManualClock(), ToyFleet()
    config = make_config(at_steps=(0,), deadline_s=30.0)
    async with toy_service(tmp_path, config, clock=clock, fleet=fleet) as service:
        gate = asyncio.Event()
        fleet.prepare = lambda engine: setattr(engine, "boot_gate", gate)
        fleet.latest.kill()
        await retry_until(lambda: service.status().state is EngineState.BOOTING)
        await clock.advance(100.0)
        gate.set()
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT


async def test_a_gate_added_while_training_holds_the_steps_after_the_next_boundary(
    tmp_path, make_config
):
    config = make_config(stop_at_step=3)
    async with toy_service(tmp_path, config) as service:
        body = config.model_dump() | {"eval_gate": {"at_steps": (0, 1)}}
        await service.configure(TrainConfig.model_validate(body))
        await play_step(service, 3)  # step 0 had begun without a gate
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT


async def test_a_missed_round_is_a_warning_until_a_later_one_is_held(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(at_steps=(0, 1), deadline_s=30.0, stop_at_step=3)
    async with toy_service(tmp_path, config, clock=clock) as service:
        await clock.advance(31.0)
        assert any("step 0 was missed" in w for w in service.status().warnings)
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        assert service.status().warnings
        await service.close_eval_round(EvalRoundClose(step=1, planned=1, completed=1))
        assert service.status().warnings == []


async def test_a_trained_server_misses_no_round_and_a_raised_stop_gives_it_its_whole_time(
    tmp_path, make_config
):
    clock = ManualClock()
    config = make_config(at_steps=(1,), deadline_s=30.0, stop_at_step=1)
    async with toy_service(tmp_path, config, clock=clock) as service:
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.TRAINED)
        await clock.advance(100.0)
        assert service.status().warnings == []
        await service.configure(config.model_copy(update={"stop_at_step": 2}))
        await clock.advance(20.0)
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        await clock.advance(11.0)
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_a_round_whose_end_is_not_recorded_is_not_closed_and_may_be_closed_again(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(at_steps=(0,))) as service:
        database = service._core.journal._db
        database.execute("PRAGMA query_only = 1")
        closing = EvalRoundClose(step=0, planned=1, completed=1)
        with pytest.raises(JournalFailed):
            await service.close_eval_round(closing)
        database.execute("PRAGMA query_only = 0")
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        await service.close_eval_round(closing)
        assert [r.step for r in service._core.journal.eval_rounds()] == [0]
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_a_missed_round_opens_its_gate_only_once_that_is_recorded(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(at_steps=(0,), deadline_s=30.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        database = service._core.journal._db
        database.execute("PRAGMA query_only = 1")
        await clock.advance(31.0)
        assert service._core.evals.holds(0)
        database.execute("PRAGMA query_only = 0")
        await clock.advance(1.0)
        assert [(r.step, r.missed) for r in service._core.journal.eval_rounds()] == [(0, True)]
        assert (await take(service, "a")).outcome is GrantOutcome.GRANTED


async def test_an_eval_item_that_a_stop_took_gets_its_number_again(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        first = await take(service, "item", kind=EpisodeKind.EVAL)
        await service.stop()
        await service.start()
        again = await take(service, "item", kind=EpisodeKind.EVAL)
        assert (first.repeat_index, again.repeat_index) == (0, 0)
