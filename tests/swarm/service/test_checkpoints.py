"""Checkpoints: the state while one is written, a disk that is full, and which folders stay."""

import asyncio

import pytest

from swarm.protocol.errors import CheckpointFailed, StateError
from swarm.protocol.states import EngineState, EpisodeKind, GrantOutcome
from swarm.server.service.checkpoint_folders import folder_name, mend, sweep
from swarm.testing import ToyFleet, retry_until, settle
from swarm.testing.server_fixture import ask, play_step, take, toy_service

S = EngineState


async def play_all(service):
    while service.status().state is not S.TRAINED:
        await play_step(service, 1)
        await retry_until(lambda: service.status().state in (S.ROLLING, S.TRAINED))


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())


async def test_calls_are_held_and_evals_granted_while_a_checkpoint_is_written(
    tmp_path, make_config
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=2, every_steps=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        fleet.latest.save_gate = gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 2))
        await retry_until(lambda: service.status().state is S.WEIGHT_EXPORTING)
        assert service.status().step == 1
        assert (await take(service, "a")).outcome is GrantOutcome.WAIT
        grant = await take(service, "x", kind=EpisodeKind.EVAL)
        assert grant.outcome is GrantOutcome.GRANTED
        call = asyncio.create_task(ask(service, grant))
        await settle()
        assert not call.done()
        with pytest.raises(StateError, match="WEIGHT_EXPORTING"):
            await service.save_checkpoint()
        gate.set()
        (reply,) = await call
        assert reply.policy_version == 1
        await playing


async def test_an_engine_that_dies_while_it_saves_is_replaced_and_saves(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=2, every_steps=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        first = fleet.latest
        first.save_gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 2))
        await retry_until(lambda: service.status().state is S.WEIGHT_EXPORTING)
        first.kill()
        first.save_gate.set()
        await playing
        await retry_until(lambda: service.status().state is S.ROLLING)
        assert [c.step for c in service.checkpoints()] == [1]
        assert service.status().engine_restarts == 1
        await play_all(service)


async def test_a_full_disk_costs_a_checkpoint_and_nothing_else(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=3, every_steps=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        engine = fleet.latest
        await play_step(service, 2)
        engine.refuse_save = "no space left"
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        status = service.status()
        assert (status.step, status.engine_restarts, status.failure) == (2, 0, None)
        assert any("no space left" in warning for warning in status.warnings)
        assert service.checkpoints() == []
        with pytest.raises(CheckpointFailed, match="no space left"):
            await service.save_checkpoint()
        engine.refuse_save = ""
        # Step 3 is no multiple of 2, but the last one is owed (and it is the final step, too).
        await play_all(service)
        status = service.status()
        assert [c.step for c in service.checkpoints()] == [3]
        assert status.warnings == []
        assert len(fleet.engines) == 1


async def test_an_owed_checkpoint_is_saved_at_the_next_step(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=9, every_steps=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await play_step(service, 2)
        fleet.latest.refuse_save = "no space left"
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        fleet.latest.refuse_save = ""
        await play_step(service, 2)
        await retry_until(lambda: [c.step for c in service.checkpoints()] == [3])
        await retry_until(lambda: service.status().warnings == [])


async def test_folders_of_earlier_runs_go_once_the_new_run_has_its_own(tmp_path, make_config):
    config = make_config(stop_at_step=2, every_steps=1, keep=1)
    async with toy_service(tmp_path, config) as service:
        await play_all(service)
        (old,) = names(tmp_path)
        (tmp_path / "checkpoints" / "my-notes").mkdir()
        (tmp_path / "checkpoints" / f".{old}.123.tmp").mkdir()
        await service.stop()
        await service.configure(make_config(seed=1, stop_at_step=2, every_steps=1, keep=1))
        assert old in names(tmp_path)
        await service.start()
        await play_step(service, 2)
        await retry_until(lambda: len(service.checkpoints()) == 1)
        (mine,) = (c.path.rsplit("/", 1)[-1] for c in service.checkpoints())
        await retry_until(lambda: names(tmp_path) == sorted([mine, "my-notes"]))


async def test_a_run_that_began_from_a_checkpoint_keeps_it(tmp_path, make_config):
    root = tmp_path / "checkpoints"
    base = root / folder_name("a" * 12, 3)
    keep = root / folder_name("b" * 12, 4)
    gone = root / folder_name("a" * 12, 2)
    for folder in (base, keep, gone):
        folder.mkdir(parents=True)
    assert sweep(root, [base, keep / "model"]) == [gone]
    assert names(tmp_path) == sorted([base.name, keep.name])
    assert sweep(tmp_path / "absent", []) == []


def test_a_checkpoint_that_a_crash_left_renamed_away_is_put_back(tmp_path):
    folder = tmp_path / folder_name("a" * 12, 3)
    moved = tmp_path / f".{folder.name}.77.old"
    moved.mkdir()
    (moved / "state").write_text("x")
    assert mend(folder)
    assert (folder / "state").read_text() == "x"
    assert mend(folder)
    assert not mend(tmp_path / folder_name("a" * 12, 4))
