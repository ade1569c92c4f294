import asyncio
import shutil

import pytest

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import EngineFailed, EpisodeGone
from swarm.protocol.messages import EvalRoundClose
from swarm.protocol.states import EngineState, GrantOutcome
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, play, play_step, take, toy_service

S = EngineState


async def play_all(service):
    while service.status().state is not S.TRAINED:
        await play_step(service, 1)
        await retry_until(lambda: service.status().state in (S.ROLLING, S.TRAINED))


@pytest.fixture
async def undisturbed(tmp_path, make_config):
    """Fingerprints of each step of a run in which nothing dies."""
    async with toy_service(tmp_path / "calm", make_config(stop_at_step=4, every_steps=2)) as calm:
        await play_all(calm)
        return [m.fingerprint for m in calm.metrics(0)]


def fingerprints(service):
    return [m.fingerprint for m in service.metrics(0)]


async def test_an_engine_killed_in_the_middle_of_a_call_is_not_noticed_by_the_caller(
    tmp_path, make_config, undisturbed
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=4, every_steps=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        for _ in range(3):
            await play_step(service, 1)
        grant = await take(service, "s3t0")
        fleet.latest.hold = asyncio.Event()
        call = asyncio.create_task(ask(service, grant, 2))
        await settle()
        fleet.latest.kill()
        replies = await asyncio.wait_for(call, 5)
        status = service.status()
        assert (status.state, status.engine_restarts) == (S.ROLLING, 1)
        assert "signal 9" in status.failure
        assert [b.step for b in fleet.latest.batches] == [
            3
        ]  # the checkpoint of step 2 has the rest
        reward = float(sum(sum(r.token_ids) for r in replies) % 5)
        await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await play_all(service)
        assert fingerprints(service) == undisturbed


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_engine_killed_around_an_update_makes_the_same_step(
    tmp_path, make_config, undisturbed, when
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=4, every_steps=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        fleet.latest.die_in_train[2] = when
        await play_all(service)
        assert service.status().engine_restarts == 1
        assert fingerprints(service) == undisturbed
        assert [m.step for m in service.metrics(0)] == [1, 2, 3, 4]


async def test_an_engine_that_dies_again_and_again_takes_the_server_offline(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        grant = await take(service, "a")
        fleet.prepare = lambda engine: setattr(engine, "refuse_boot", "no driver")
        fleet.latest.kill()
        await retry_until(lambda: service.status().state is S.OFFLINE)
        status = service.status()
        assert "no driver" in status.failure
        assert status.engine_restarts == 5
        with pytest.raises(EpisodeGone):
            service.episode_for_key(grant.api_key)
        fleet.prepare = lambda engine: None
        await retry_until(lambda: service.status().open_episodes == 0)
        assert (await service.start()).state is S.ROLLING


async def test_a_replay_that_gives_other_weights_takes_the_server_offline(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is S.ROLLING)
        fleet.prepare = lambda engine: engine.roll_back_steps.add(1)
        fleet.latest.kill()
        await retry_until(lambda: service.status().state is S.OFFLINE)
        assert "fingerprint" in service.status().failure
        assert len(fleet.engines) == 2


async def test_a_trained_server_recovers_to_trained(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        await play_all(service)
        before = service.status().fingerprint
        fleet.latest.kill()
        await retry_until(lambda: len(fleet.engines) == 2)
        await retry_until(lambda: service.status().state is S.TRAINED)
        assert service.status().fingerprint == before


async def killed(state_dir, copy):
    """What kill -9 leaves: the files of the state folder as they are at this moment."""
    await asyncio.to_thread(shutil.copytree, state_dir, copy)
    return copy


async def test_a_server_killed_between_episodes_resumes_with_its_pool(
    tmp_path, make_config, undisturbed
):
    config = make_config(stop_at_step=4, every_steps=2)
    async with toy_service(tmp_path / "one", config) as service:
        await play_step(service, 1)
        await retry_until(lambda: service.status().state is S.ROLLING)
        for _ in range(4):
            assert (
                await play(
                    service,
                    service.pool().wanted[0].task_id
                    if service.pool().wanted
                    else f"s1t{len(service.pool().task_ids)}",
                    turns=2,
                )
            ).accepted
        lost = await take(service, "s1t1")
        await ask(service, lost)
        incarnation = service.status().policy_version.incarnation
        left = await killed(tmp_path / "one", tmp_path / "two")
    async with toy_service(left, resume=True) as service:
        status = service.status()
        assert (status.step, status.state) == (1, S.ROLLING)
        assert status.policy_version.incarnation == incarnation
        assert service.pool().episodes_finished == 4
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("s1t1", 2)]
        with pytest.raises(EpisodeGone, match="restarted"):
            service.episode_for_key(lost.api_key)
        late = await service.finish(lost.episode_id, FinishRequest(reward=1.0))
        assert not late.accepted
        await play_all(service)
        assert fingerprints(service) == undisturbed


async def test_a_server_killed_in_the_middle_of_an_update_resumes_with_that_update(
    tmp_path, make_config, undisturbed
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=4, every_steps=2)
    async with toy_service(tmp_path / "one", config, fleet=fleet) as service:
        for _ in range(2):
            await play_step(service, 1)
            await retry_until(lambda: service.status().state is S.ROLLING)
        fleet.latest.train_gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 1))
        await retry_until(lambda: service.status().state is S.WEIGHT_SYNCING)
        await settle()
        left = await killed(tmp_path / "one", tmp_path / "two")
        fleet.latest.train_gate.set()
        await playing
        await retry_until(lambda: service.status().step == 3)
        whole = service.metrics(2)[0]
    async with toy_service(left, resume=True) as service:
        await retry_until(lambda: service.status().step == 3)
        resumed = service.metrics(2)[0]
        same = ("reward_mean", "tokens", "rows", "calls", "episodes", "groups", "fingerprint")
        assert [getattr(resumed, k) for k in same] == [getattr(whole, k) for k in same]
        await play_all(service)
        assert fingerprints(service) == undisturbed


async def test_resume_remembers_closed_eval_rounds_and_what_the_step_dropped(tmp_path, make_config):

    config = make_config(at_steps=(0,), group_rule="drop", tasks=2, stop_at_step=1)
    async with toy_service(tmp_path / "one", config) as service:
        await service.close_eval_round(EvalRoundClose(step=0, planned=1, completed=1))
        lost = await take(service, "a")
        (reply,) = await ask(service, lost)
        await service.abort(lost.episode_id, AbortRequest())
        left = await killed(tmp_path / "one", tmp_path / "two")
    async with toy_service(left, resume=True) as service:
        grant = await take(service, "b")
        assert (grant.outcome, grant.group_id) == (GrantOutcome.GRANTED, "s0.g1")
        assert (await take(service, "c")).outcome is GrantOutcome.WAIT
        await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        for _ in range(2):
            await play(service, "b")
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.eval_round) == (1, "closed")
        assert metrics.episodes_dropped == {"episode_aborted": 1}
        assert metrics.tokens["dropped:episode_aborted"] == reply.completion_tokens


async def test_resuming_an_empty_folder_is_an_offline_server(tmp_path):
    from swarm.server.keys import Tokens
    from swarm.server.service.service import SwarmService

    service = await SwarmService.open(
        state_dir=tmp_path, engine_factory=ToyFleet(), tokens=Tokens.mint(), resume=True
    )
    assert (service.status().state, service.status().policy_version) == (S.OFFLINE, None)
    await service.close()
    await service.close()


async def test_weights_that_no_checkpoint_and_no_batch_lead_to_are_refused(tmp_path, make_config):
    config = make_config(stop_at_step=4, every_steps=1, keep=1)
    async with toy_service(tmp_path, config) as service:
        await play_step(service, 1)
        await retry_until(lambda: service.status().state is S.ROLLING)
        await service.stop()
        await asyncio.to_thread(shutil.rmtree, service.checkpoints()[-1].path)
        with pytest.raises(EngineFailed, match="step 1"):
            await service.start()
        assert service.status().state is S.OFFLINE


async def test_a_checkpoint_that_is_saved_again_is_never_gone_meanwhile(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=4, every_steps=1, keep=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await play_step(service, 1)
        await retry_until(lambda: service.status().state is S.ROLLING)
        fleet.latest.kill()
        with pytest.raises(EngineFailed):
            await service.save_checkpoint()
        await retry_until(lambda: service.status().engine_restarts == 1)
        await retry_until(lambda: service.status().state in (S.ROLLING, S.OFFLINE))
        assert service.status().state is S.ROLLING
