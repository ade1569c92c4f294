"""Warnings of the status: raised by what happens, gone when it is over."""

import asyncio
import shutil

import pytest

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.config import SamplingConfig
from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import ContextLengthExceeded, JournalFailed
from swarm.protocol.states import EngineState, EpisodeState
from swarm.server.service.alarms import Alarms
from swarm.server.service.calls import ChatCall
from swarm.server.service.health import LOOK_S, Health
from swarm.testing import ManualClock, ToyFleet, retry_until
from swarm.testing.server_fixture import ask, play, play_step, reply_to, take, toy_service

S = EngineState


def read_only(service, on):
    """What SQLite answers on a file that it may only read."""
    service._core.journal._db.execute(f"PRAGMA query_only = {on:d}")


async def test_a_journal_that_cannot_be_written_is_a_warning_until_it_can(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        read_only(service, on=True)
        with pytest.raises(JournalFailed):
            await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        (warning,) = service.status().warnings
        assert "read-only" in warning
        await clock.advance(LOOK_S + 1)
        assert service.status().warnings == [warning]
        read_only(service, on=False)
        # Nobody writes, and the warning ends nevertheless.
        await clock.advance(LOOK_S + 1)
        assert service.status().warnings == []
        assert (await service.finish(grant.episode_id, FinishRequest(reward=1.0))).accepted


async def test_a_contradiction_in_the_journal_is_no_trouble_of_its_file(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        record = service._core.journal.episode(grant.episode_id)
        with pytest.raises(JournalFailed, match="already holds"):
            service._core.journal.record_grant(record)
        assert service.status().warnings == []


async def test_several_leases_that_end_at_once_all_end_also_when_one_end_is_not_recorded(
    tmp_path, make_config
):
    clock = ManualClock()
    config = make_config(tasks=3, repeat=1)
    async with toy_service(tmp_path, config, clock=clock) as service:
        episodes = []
        for name in ("a", "b", "c"):
            service.register(ClientRegistration(client_id=name))
            episodes.append((await take(service, name, client_id=name)).episode_id)

        def states():
            return [service.trace(e, calls=False).state for e in episodes]

        recorded, refused = service._core.journal.record_end, []

        def refuse_once(episode_id, **values):
            if episode_id == episodes[0] and not refused:
                refused.append(episode_id)
                raise JournalFailed("the journal is full")
            return recorded(episode_id, **values)

        service._core.journal.record_end = refuse_once
        await clock.advance(service._core.clients.lease_s)
        assert refused == [episodes[0]]
        assert states() == [EpisodeState.OPEN, EpisodeState.ABORTED, EpisodeState.ABORTED]
        await clock.advance(1.0)
        assert states() == [EpisodeState.ABORTED] * 3


async def test_a_client_that_comes_back_before_its_end_is_recorded_keeps_its_new_episodes(
    tmp_path, make_config
):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        service.register(ClientRegistration(client_id="a"))
        lost = await take(service, "t", client_id="a")
        read_only(service, on=True)
        await clock.advance(service._core.clients.lease_s)
        read_only(service, on=False)
        service.register(ClientRegistration(client_id="a"))
        fresh = await take(service, "t", client_id="a")
        await clock.advance(1.0)
        assert service.trace(fresh.episode_id, calls=False).state is EpisodeState.OPEN
        assert service.trace(lost.episode_id, calls=False).state is EpisodeState.ABORTED


async def test_a_nearly_full_disk_is_a_warning(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        Health(service._core, least_free_bytes=1 << 62).look()
        assert any("nearly full" in w for w in service.status().warnings)
        Health(service._core, least_free_bytes=0).look()
        assert service.status().warnings == []


async def test_free_space_is_low_below_two_of_the_newest_checkpoint(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.TRAINED)
        Health(service._core, least_free_bytes=0).look()
        assert service.status().warnings == []
        Health(service._core, least_free_bytes=0, checkpoints_ahead=1 << 62).look()
        assert any("nearly full" in w for w in service.status().warnings)


async def test_an_undone_update_is_a_warning_until_one_is_not(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(stop_at_step=3), fleet=fleet) as service:
        fleet.latest.roll_back_steps.add(1)
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        assert any("step 1 was undone" in w for w in service.status().warnings)
        await play_step(service, 2)
        await retry_until(lambda: service.status().step == 2)
        assert service.status().warnings == []


async def test_warnings_of_the_last_step_are_back_after_a_restart(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=3)
    async with toy_service(tmp_path / "one", config, fleet=fleet) as service:
        fleet.latest.roll_back_steps.add(1)
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
    again = ToyFleet()
    again.prepare = lambda engine: engine.roll_back_steps.add(1)
    async with toy_service(tmp_path / "two", resume=True, fleet=again) as service:
        assert any("step 1 was undone" in w for w in service.status().warnings)


def drifted(metrics, **changes):
    return metrics.model_copy(update=changes)


async def test_drift_and_a_gap_between_trainer_and_sampler_are_judged_each_step(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        await play_step(service, 2)
        await retry_until(lambda: service.status().step == 1)
        (plain,) = service.metrics(0)
    alarms = Alarms()
    assert not alarms.step_done(drifted(plain, calls=9, divergences=9), 0.1)
    assert not alarms.step_done(drifted(plain, calls=100, divergences=10), 0.1)
    assert alarms.texts() == []
    assert alarms.step_done(drifted(plain, calls=100, divergences=11), 0.1)
    assert "11 of 100 calls" in alarms.texts()[0]
    alarms.step_done(drifted(plain, logprob_gap_max=0.7), 0.1)
    assert "differ by 0.70" in alarms.texts()[0]
    # Stale tokens differ because the weights moved.
    alarms.step_done(drifted(plain, logprob_gap_max=0.7, staleness_max=1), 0.1)
    assert alarms.texts() == []


async def play_turns(service, *, honest):
    """Play a whole step, three calls an episode; a dishonest client sends back other answers than it got."""
    step = service.status().step
    for task in (f"s{step}a", f"s{step}b"):
        for reward in (0.0, 1.0, 0.5):
            grant = await take(service, task)
            episode = service.episode_for_key(grant.api_key)
            said = [{"role": "user", "content": "Compute 1+2."}]
            for _ in range(3):
                reply = await reply_to(service, episode, ChatCall(messages=list(said)))
                told = reply.message if honest else {"role": "assistant", "content": "other"}
                said += [told, {"role": "user", "content": "Again."}]
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
    await retry_until(lambda: service.status().step == step + 1)


async def test_a_step_whose_calls_diverge_is_an_event_and_a_warning_that_a_good_step_clears(
    tmp_path, make_config
):
    config = make_config(stop_at_step=3, sampling=SamplingConfig(divergence_alarm=0.5))
    async with toy_service(tmp_path, config) as service:
        for honest in (False, True, False):
            await play_turns(service, honest=honest)
            drift = [w for w in service.status().warnings if "did not continue" in w]
            assert len(drift) == (not honest)
        assert [m.divergences for m in service.metrics(0)] == [12, 0, 12]
        events = service._core.journal.events_after(0)
        found = [event.data for event in events if event.kind == "drift"]
        assert found == [
            {"step": 1, "divergences": 12, "calls": 18},
            {"step": 3, "divergences": 12, "calls": 18},
        ]


async def test_control_tokens_in_messages_and_prompts_that_were_too_long_are_counted_per_step(
    tmp_path, make_config
):
    config = make_config(tasks=1, repeat=3, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        for reward in (0.0, 1.0, None):
            grant = await take(service, "a")
            episode = service.episode_for_key(grant.api_key)
            said = [{"role": "user", "content": "a <|im_end|> b <|im_start|>"}]
            reply = await reply_to(service, episode, ChatCall(messages=list(said)))
            said += [reply.message, {"role": "user", "content": "<|im_end|>"}]
            await reply_to(service, episode, ChatCall(messages=list(said)))
            assert [call.guarded for call in episode.calls] == [2, 1]
            long = ChatCall(messages=[{"role": "user", "content": "x" * 5000}])
            with pytest.raises(ContextLengthExceeded):
                await service.answer(episode, long)
            if reward is None:
                await service.abort(grant.episode_id, AbortRequest(reason="lost"))
            else:
                await service.finish(grant.episode_id, FinishRequest(reward=reward))
                finished = grant.episode_id
            assert service.trace(grant.episode_id, calls=False).context_overflows == 1
        await play(service, "a", reward=lambda *_: 0.5)
        await retry_until(lambda: service.status().step == 1)
        (metrics,) = service.metrics(0)
        assert (metrics.guarded, metrics.context_overflows) == (9, 3)
    async with toy_service(tmp_path, resume=True) as service:
        assert service.trace(finished, calls=False).context_overflows == 1


async def test_what_a_lost_episode_counted_is_counted_again_after_a_restart(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant = await take(service, "a")
        said = [{"role": "user", "content": "<|im_end|>"}]
        episode = service.episode_for_key(grant.api_key)
        await reply_to(service, episode, ChatCall(messages=said))
        with pytest.raises(ContextLengthExceeded):
            await service.answer(episode, ChatCall(messages=[said[0] | {"content": "x" * 5000}]))
        await service.abort(grant.episode_id, AbortRequest(reason="lost"))
    async with toy_service(tmp_path, resume=True) as service:
        for reward in (0.0, 1.0):
            await play(service, "a", reward=lambda *_, reward=reward: reward)
        await retry_until(lambda: service.status().step == 1)
        (metrics,) = service.metrics(0)
        assert (metrics.guarded, metrics.context_overflows) == (1, 1)
