"""C4 and C5: trainers say when the step is taken, and it is never taken without something to train on."""

import pytest

from swarm.protocol.clients import AgreeRequest, ClientRegistration
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import NotFoundError, StateError
from swarm.protocol.states import EngineState, Role
from swarm.testing import ManualClock, ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, take, toy_service


def join(service, *names, role=Role.TRAINER):
    for name in names:
        service.register(ClientRegistration(client_id=name, role=role))


def agree(service, name, step=0):
    return service.agree(name, AgreeRequest(for_step=step))


async def group(service, task, rewards, client="one"):
    """Play a whole group of a task; rewards by seat."""
    for reward in rewards:
        grant = await take(service, task, client_id=client)
        await ask(service, grant)
        assert (
            await service.finish(grant.episode_id, FinishRequest(reward=float(reward)))
        ).accepted


async def test_c5_takes_the_step_when_one_trainer_agrees(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(policy="C5", tasks=4)) as service:
        join(service, "one", "two")
        await group(service, "a", [0, 1, 2])
        open_one = await take(service, "b", client_id="two")
        assert service.status().state is EngineState.ROLLING
        assert "a trainer to agree" in service.status().waiting_for
        reply = agree(service, "one")
        assert (reply.agreed, reply.missing, reply.fires) == (["one"], [], True)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.updated, metrics.agreed) == (1, True, ["one"])
        late = await service.finish(open_one.episode_id, FinishRequest(reward=1.0))
        assert not late.accepted


async def test_c4_waits_for_every_trainer_and_names_who_is_missing(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(policy="C4")) as service:
        join(service, "one", "two", "three")
        join(service, "judge", role=Role.EVALUATOR)
        await group(service, "a", [0, 1, 2])
        reply = agree(service, "one")
        assert (reply.missing, reply.fires) == (["three", "two"], False)
        assert "the agreement of three, two" in service.status().waiting_for
        agree(service, "three")
        await settle()
        pool = service.pool()
        assert (pool.state, pool.agreed, pool.agree_missing, pool.takeable) == (
            EngineState.ROLLING,
            ["one", "three"],
            ["two"],
            True,
        )
        assert agree(service, "two").fires
        await retry_until(lambda: service.status().step == 1)
        assert service.metrics(0)[0].agreed == ["one", "three", "two"]
        assert service.pool().agreed == []


async def test_c4_does_not_wait_for_a_trainer_whose_lease_ended(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(policy="C4"), clock=clock) as service:
        join(service, "one", "gone")
        await group(service, "a", [0, 1, 2])
        assert not agree(service, "one").fires
        await clock.advance(40)
        service.heartbeat("one")
        assert service.status().step == 0
        await clock.advance(25)
        await retry_until(lambda: service.status().step == 1)


async def test_an_agreement_waits_until_something_is_trainable(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(policy="C5")) as service:
        join(service, "one")
        await group(service, "dull", [1, 1, 1])
        assert not agree(service, "one").fires
        await settle()
        assert service.status().state is EngineState.ROLLING
        assert "nothing is trainable yet" in service.status().waiting_for
        await group(service, "keen", [0, 1, 0])
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.episodes, metrics.updated) == (2, 6, True)


async def test_a_step_that_can_get_nothing_trainable_is_taken_by_agreement_with_nothing(
    tmp_path, make_config
):
    config = make_config(policy="C5", tasks=1, max_groups_factor=2)
    async with toy_service(tmp_path, config) as service:
        join(service, "one")
        agree(service, "one")
        await group(service, "dull", [1, 1, 1])
        assert service.status().step == 0
        await group(service, "dull too", [2, 2, 2])
        await retry_until(lambda: service.status().step == 1)
        assert not service.metrics(0)[0].updated


async def test_a_trainer_that_joins_must_agree_too(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(policy="C4")) as service:
        join(service, "one")
        agree(service, "one")
        join(service, "two")
        await group(service, "a", [0, 1, 2])
        assert service.status().state is EngineState.ROLLING
        join(service, "two", role=Role.EVALUATOR)  # it only looks on from now on
        await retry_until(lambda: service.status().step == 1)


async def test_agreeing_again_gets_the_same_answer_also_when_the_step_was_taken(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(policy="C5", stop_at_step=3)) as service:
        join(service, "one", "two")
        await group(service, "a", [0, 1, 2])
        first = agree(service, "one")
        assert agree(service, "one") == first
        await retry_until(lambda: service.status().step == 1)
        assert agree(service, "one") == first
        with pytest.raises(StateError, match="Step 0 has passed") as caught:
            agree(service, "two")
        assert caught.value.details == {"step": 1}
        assert service.pool().agreed == []


async def test_what_cannot_be_agreed_to_is_refused_with_why(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(policy="C4")) as service:
        join(service, "one")
        join(service, "judge", role=Role.EVALUATOR)
        with pytest.raises(NotFoundError, match="not registered"):
            agree(service, "nobody")
        with pytest.raises(StateError, match="only trainers agree"):
            agree(service, "judge")
        with pytest.raises(StateError, match="Step 7 has not begun"):
            agree(service, "one", step=7)
    async with toy_service(tmp_path / "c2", make_config(policy="C2")) as service:
        join(service, "one")
        with pytest.raises(StateError, match="asks nobody") as caught:
            agree(service, "one")
        assert "'C4'" in caught.value.hint


async def test_an_agreement_survives_a_restart_and_c4_gives_its_trainers_a_lease_to_come_back(
    tmp_path, make_config
):
    config, clock = make_config(policy="C4"), ManualClock()
    async with toy_service(tmp_path, config, fleet=ToyFleet(), clock=clock) as service:
        join(service, "one", "two")
        await group(service, "a", [0, 1, 2])
        agree(service, "one")
    async with toy_service(tmp_path, fleet=ToyFleet(), clock=clock, resume=True) as service:
        join(service, "one")
        assert service.pool().agreed == ["one"]
        await clock.advance(30)
        assert service.status().step == 0  # two may still come back
        join(service, "two")
        await clock.advance(31)
        assert service.pool().agree_missing == ["two"]
        assert agree(service, "two").fires
        await retry_until(lambda: service.status().step == 1)


async def test_after_a_restart_c4_goes_on_without_the_trainer_that_does_not_come_back(
    tmp_path, make_config
):
    config, clock = make_config(policy="C4"), ManualClock()
    async with toy_service(tmp_path, config, fleet=ToyFleet(), clock=clock) as service:
        join(service, "one", "two")
        await group(service, "a", [0, 1, 2])
        agree(service, "one")
    async with toy_service(tmp_path, fleet=ToyFleet(), clock=clock, resume=True) as service:
        await clock.advance(10)
        join(service, "one")
        assert service.status().step == 0
        await clock.advance(51)
        await retry_until(lambda: service.status().step == 1)


@pytest.mark.parametrize("policy", ["C4", "C5"])
async def test_no_more_groups_are_granted_than_a_step_by_agreement_may_hold(
    tmp_path, make_config, policy
):
    async with toy_service(tmp_path, make_config(policy=policy, oversample=1.5)) as service:
        granted = [(await take(service, f"t{i}")).outcome for i in range(5)]
        assert granted == ["granted"] * 3 + ["wait"] * 2


async def test_a_step_by_agreement_takes_the_exact_shares_of_its_mix(tmp_path, make_config):
    config = make_config(policy="C5", tasks=4, repeat=2, mix={"a": 0.5, "b": 0.5})
    async with toy_service(tmp_path, config) as service:
        join(service, "one")
        for task_set, name in (("a", "1"), ("a", "2"), ("b", "1")):
            for seat in range(2):
                grant = await take(service, name, task_set=task_set)
                await service.finish(grant.episode_id, FinishRequest(reward=float(seat)))
        agree(service, "one")
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert metrics.groups == 3
        assert metrics.mix_owed == {"a": -0.5, "b": 0.5}
        # The next step begins with what is owed.
        assert service.pool().quota_left == {"a": 2, "b": 2}
