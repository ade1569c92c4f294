"""Changes of the configuration: from which step they hold, what they keep, and that a resumed server knows them."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.effects import (
    EFFECTS,
    changes_between,
    effect_of,
    heaviest,
    leaf_keys,
    line_of,
)
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import ConfigError, StateError
from swarm.protocol.states import ConfigEffect, EngineState, EpisodeKind, GrantOutcome
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import ask, play_step, take, toy_service

S = EngineState
STEP, ENGINE, RUN = ConfigEffect.STEP, ConfigEffect.ENGINE, ConfigEffect.RUN


def changed(config: TrainConfig, **sections) -> TrainConfig:
    """The configuration with some keys of some sections replaced."""
    body = config.model_dump()
    for name, value in sections.items():
        body[name] = {**body[name], **value} if isinstance(value, dict) else value
    return TrainConfig.model_validate(body)


async def play_all(service):
    while service.status().state is not S.TRAINED:
        await play_step(service, 1)
        await retry_until(lambda: service.status().state in (S.ROLLING, S.TRAINED))


async def killed(state_dir, copy):
    await asyncio.to_thread(shutil.copytree, state_dir, copy)
    return copy


async def events(service, kind):
    found, marker = [], service._core.journal.event("marker")
    async for event in service.events(0):
        if event.seq >= marker.seq:
            return found
        if event.kind == kind:
            found.append(event.data)
    raise AssertionError


# -- the table ----------------------------------------------------------------------------------------------


def test_every_key_of_the_configuration_has_an_effect_and_every_line_of_the_table_a_key():
    keys = leaf_keys()
    assert len(keys) == len(set(keys)) > 30
    used = set()
    for key in keys:
        assert effect_of(key) in ConfigEffect
        used.add(line_of(key))
    assert used == set(EFFECTS)


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        ("optimizer.lr", STEP),
        ("algorithm.kl_coef", STEP),
        ("batch.policy", STEP),
        ("batch.mix", STEP),
        ("eval_gate.every_steps", STEP),
        ("stop_at_step", STEP),
        ("episode.idle_deadline_s", STEP),
        ("checkpoint.keep", STEP),
        ("asynchronous.max_staleness", STEP),
        ("model.max_model_len", ENGINE),
        ("sampling.default_temperature", ENGINE),
        ("engine_hang_s", ENGINE),
        ("optimizer.beta1", RUN),
        ("algorithm.clip_low", RUN),
        ("model.path", RUN),
        ("seed", RUN),
        ("asynchronous.enabled", RUN),
    ],
)
def test_the_documented_keys_take_what_the_docs_say(key, effect):
    assert effect_of(key) is effect


def test_a_difference_names_keys_in_the_schemas_order_with_what_each_takes():
    old = TrainConfig()
    new = changed(old, optimizer={"lr": 1e-3, "beta1": 0.8}, batch={"mix": {"a": 1.0}})
    found = [(c.key, c.effect) for c in changes_between(old, new)]
    assert found == [("optimizer.lr", STEP), ("optimizer.beta1", RUN), ("batch.mix", STEP)]
    assert heaviest(changes_between(old, new)) is RUN
    assert changes_between(old, old) == []
    assert heaviest([]) is STEP
    assert {c.key for c in changes_between(None, old)} == set(leaf_keys())


# -- a running server ---------------------------------------------------------------------------------------


async def test_a_step_change_holds_from_the_next_step_and_is_in_its_batch(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=3)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        before = service.status()
        new = changed(config, optimizer={"lr": 0.5}, algorithm={"kl_coef": 0.1}, batch={"tasks": 1})
        changes = await service.configure(new, who="ann")
        assert {c.key: c.effect for c in changes} == {
            "optimizer.lr": STEP,
            "algorithm.kl_coef": STEP,
            "batch.tasks": STEP,
        }
        assert service.pool().tasks_target == 2
        assert service.config == new
        assert await service.configure(new) == []
        assert service.status().policy_version == before.policy_version
        await play_all(service)
        sent = [(b.lr, b.kl_coef) for b in fleet.latest.batches]
        assert sent == [(config.optimizer.lr, 0.0), (0.5, 0.1), (0.5, 0.1)]
        assert [m.groups for m in service.metrics(0)] == [2, 1, 1]
        assert [m.lr for m in service.metrics(0)] == [config.optimizer.lr, 0.5, 0.5]
        (event,) = [e for e in await events(service, "config_changed") if e["from_step"]]
        assert (event["who"], event["from_step"]) == ("ann", 1)
        assert {"key": "batch.tasks", "old": 2, "new": 1, "effect": "step"} in event["changes"]


async def test_a_change_that_is_taken_back_before_its_step_never_holds(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await service.configure(changed(config, optimizer={"lr": 0.5}))
        (back,) = await service.configure(config)
        assert (back.old, back.new) == (0.5, config.optimizer.lr)
        await play_all(service)
        assert {b.lr for b in fleet.latest.batches} == {config.optimizer.lr}


@pytest.mark.every_engine
async def test_a_running_server_names_what_each_key_takes_and_changes_nothing(
    tmp_path, make_config
):
    config = make_config()
    async with toy_service(tmp_path, config) as service:
        new = changed(
            config,
            optimizer={"lr": 0.5, "beta1": 0.8},
            sampling={"max_response_tokens": 9},
            seed=4,
        )
        with pytest.raises(StateError) as refused:
            await service.configure(new)
        text = refused.value.message
        assert "sampling.max_response_tokens: a restart of the engine" in text
        assert "seed, optimizer.beta1: a new run" in text
        assert "optimizer.lr" not in text
        assert len(refused.value.details["changes"]) == 4
        assert service.config == config


@pytest.mark.every_engine
async def test_a_dry_run_shows_everything_and_changes_nothing_in_any_state(tmp_path, make_config):
    config = make_config()
    async with toy_service(tmp_path, config) as service:
        new = changed(config, seed=4, optimizer={"lr": 0.5})
        for _ in range(2):
            shown = await service.configure(new, dry_run=True)
            assert [(c.key, c.effect) for c in shown] == [("seed", RUN), ("optimizer.lr", STEP)]
            assert service.config == config
        wrong = changed(config, model={"path": "builtin:no"})
        with pytest.raises(ConfigError):
            await service.configure(wrong, dry_run=True)
        await service.stop()
        before = service.status().policy_version
        assert len(await service.configure(new, dry_run=True)) == 2
        assert service.status().policy_version == before


async def test_a_dry_run_before_any_configuration_shows_every_key(tmp_path, make_config):
    async with toy_service(tmp_path) as service:
        shown = await service.configure(make_config(), dry_run=True)
        assert {c.key for c in shown} == set(leaf_keys())
        with pytest.raises(StateError):
            service.config  # noqa: B018


# -- more and fewer steps -----------------------------------------------------------------------------------


async def test_a_raised_stop_takes_a_trained_server_back_to_rolling(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await play_all(service)
        assert (await take(service, "x")).outcome is GrantOutcome.TRAINING_COMPLETE
        # With the new stop also comes another batch size, at once: no step is open.
        await service.configure(changed(config, stop_at_step=3, batch={"tasks": 1}))
        status = service.status()
        assert (status.state, status.step, status.stop_at_step) == (S.ROLLING, 1, 3)
        assert service.pool().tasks_target == 1
        await play_all(service)
        assert [m.groups for m in service.metrics(0)] == [2, 1, 1]
        assert len(fleet.engines) == 1


async def test_the_stop_may_be_raised_while_the_last_checkpoint_is_written(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        fleet.latest.save_gate = gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 2))
        await retry_until(lambda: service.status().state is S.WEIGHT_EXPORTING)
        assert "checkpoint" in service.status().waiting_for
        await service.configure(changed(config, stop_at_step=2))
        assert service.status().state is S.WEIGHT_EXPORTING
        gate.set()
        await playing
        await retry_until(lambda: service.status().state is S.ROLLING)
        await play_all(service)
        assert service.status().step == 2


@pytest.mark.every_engine
async def test_a_lowered_stop_ends_training_at_the_next_boundary(tmp_path, make_config):
    config = make_config(stop_at_step=9)
    async with toy_service(tmp_path, config) as service:
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        await service.configure(changed(config, stop_at_step=1))
        assert service.status().state is S.ROLLING
        await play_all(service)
        assert service.status().step == 2


# -- an OFFLINE server --------------------------------------------------------------------------------------


async def test_offline_step_and_engine_changes_keep_the_run_and_its_pool(tmp_path, make_config):
    fleet = ToyFleet()
    config = make_config(tasks=2, repeat=3, stop_at_step=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        for reward in (0.0, 1.0):
            grant = await take(service, "s1t0")
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await service.stop()
        before = service.status()
        new = changed(config, batch={"tasks": 1, "repeat": 2}, sampling={"max_response_tokens": 3})
        changes = await service.configure(new)
        assert {c.effect for c in changes} == {STEP, ENGINE}
        assert service.status().policy_version == before.policy_version
        assert service.status().step == 1
        assert service.pool().groups_complete == 1
        await service.start()
        # The two that had finished are all that the smaller step needs.
        await retry_until(lambda: service.status().state is S.TRAINED)
        assert [m.episodes for m in service.metrics(0)] == [6, 2]


@pytest.mark.every_engine
async def test_a_smaller_group_drops_the_members_without_a_seat_and_says_so(tmp_path, make_config):
    config = make_config(tasks=1, repeat=3, stop_at_step=1)
    async with toy_service(tmp_path / "one", config) as service:
        ids = []
        for reward in (0.0, 1.0):
            grant = await take(service, "a")
            ids.append(grant.episode_id)
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await service.stop()
        await service.configure(changed(config, batch={"repeat": 1}))
        assert service.pool().episodes_finished == 1
        left = await killed(tmp_path / "one", tmp_path / "two")
        late = await service.finish(ids[1], FinishRequest(reward=1.0))
        assert late.accepted or "repeat" in late.reason
        assert service._core.journal.episode(ids[1], calls=False).dropped == "leftover"
    async with toy_service(left, resume=True) as service:
        await retry_until(lambda: service.status().state is S.TRAINED)
        metrics = service.metrics(0)[0]
        assert (metrics.episodes, metrics.episodes_dropped) == (1, {"leftover": 1})


@pytest.mark.every_engine
async def test_a_larger_group_asks_for_the_members_that_it_lacks(tmp_path, make_config):
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        await service.stop()
        await service.configure(changed(config, batch={"repeat": 3}))
        await service.start()
        assert [(w.task_id, w.missing) for w in service.pool().wanted] == [("a", 2)]
        assert (await take(service, "a")).repeat_index == 1


async def test_a_context_too_short_for_what_was_recorded_is_refused(tmp_path, make_config):
    config = make_config(stop_at_step=3, every_steps=100)
    async with toy_service(tmp_path, config) as service:
        await play_step(service, 2)
        await retry_until(lambda: service.status().state is S.ROLLING)
        await service.stop()
        with pytest.raises(StateError, match="recorded"):
            await service.configure(changed(config, model={"max_model_len": 8}))
        assert service.config == config
        (change,) = await service.configure(changed(config, model={"max_model_len": 400}))
        assert change.effect is ENGINE
        assert (await service.start()).step == 1


@pytest.mark.every_engine
async def test_what_was_evaluated_while_trained_stays_in_the_account(tmp_path, make_config):
    config = make_config(stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        await play_all(service)
        grant = await take(service, "x", kind=EpisodeKind.EVAL)
        (reply,) = await ask(service, grant)
        await service.finish(grant.episode_id, FinishRequest())
        await service.configure(changed(config, stop_at_step=2))
        await play_all(service)
        assert service.metrics(1)[0].tokens["dropped:eval"] == reply.completion_tokens


@pytest.mark.every_engine
async def test_offline_a_run_change_begins_a_new_run(tmp_path, make_config):
    config = make_config()
    async with toy_service(tmp_path, config) as service:
        await play_step(service, 2)
        await service.stop()
        before = service.status().policy_version.incarnation
        await service.configure(changed(config, seed=7), who="ann")
        status = service.status()
        assert status.policy_version.incarnation != before
        assert (status.step, status.policy_version.n) == (0, 0)
        assert [e["who"] for e in await events(service, "configured")] == ["", "ann"]


async def test_offline_with_a_committed_batch_a_step_change_waits_for_the_next_step(
    tmp_path, make_config
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=2)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        fleet.latest.train_gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 2))
        await retry_until(lambda: service._core.journal.committed_after(0))
        await service.stop()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await service.configure(changed(config, optimizer={"lr": 0.5}))
        await service.start()
        await retry_until(lambda: service.status().step == 1)
        await retry_until(lambda: service.status().state is S.ROLLING)
        await play_all(service)
        assert [b.lr for b in fleet.latest.batches] == [config.optimizer.lr, 0.5]


# -- crashes ------------------------------------------------------------------------------------------------


async def test_an_accepted_change_survives_a_crash_before_and_after_its_step(tmp_path, make_config):
    config = make_config(stop_at_step=3, every_steps=100)
    new = changed(config, optimizer={"lr": 0.5}, batch={"tasks": 1})
    calm_fleet = ToyFleet()
    async with toy_service(tmp_path / "calm", config, fleet=calm_fleet) as service:
        await service.configure(new)
        await play_all(service)
        undisturbed = [m.fingerprint for m in service.metrics(0)]
    async with toy_service(tmp_path / "one", config) as service:
        await service.configure(new)
        left = await killed(tmp_path / "one", tmp_path / "two")
    async with toy_service(left, resume=True) as service:
        assert service.config == new
        assert service.pool().tasks_target == 2
        await play_step(service, 1)
        await retry_until(lambda: service.status().state is S.ROLLING)
        assert service.pool().tasks_target == 1
        left = await killed(left, tmp_path / "three")
    fleet = ToyFleet()
    async with toy_service(left, resume=True, fleet=fleet) as service:
        # Without a checkpoint everything is replayed, each batch with the rate that it was trained with.
        assert [b.lr for b in fleet.latest.batches] == [config.optimizer.lr]
        assert service.pool().tasks_target == 1
        await play_all(service)
        assert [b.lr for b in fleet.latest.batches] == [config.optimizer.lr, 0.5, 0.5]
        assert [m.fingerprint for m in service.metrics(0)] == undisturbed


async def test_a_raised_stop_survives_a_crash(tmp_path, make_config):
    config = make_config(stop_at_step=1)
    async with toy_service(tmp_path / "one", config) as service:
        await play_all(service)
        await service.configure(changed(config, stop_at_step=2))
        left = await killed(tmp_path / "one", tmp_path / "two")
    async with toy_service(left, resume=True) as service:
        assert service.status().state is S.ROLLING
        await play_all(service)
        assert service.status().step == 2


async def test_a_trained_engine_that_dies_while_the_stop_is_raised_goes_on_training(
    tmp_path, make_config
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        await play_all(service)
        gate = asyncio.Event()
        fleet.prepare = lambda engine: setattr(engine, "boot_gate", gate)
        fleet.latest.kill()
        await retry_until(lambda: service.status().state is S.BOOTING)
        await service.configure(changed(config, stop_at_step=2))
        gate.set()
        await retry_until(lambda: service.status().state is S.ROLLING)
        await play_all(service)
        assert service.status().step == 2


async def test_a_server_stopped_between_two_steps_opens_the_next_one_at_its_start(
    tmp_path, make_config
):
    fleet = ToyFleet()
    config = make_config(stop_at_step=3, every_steps=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        fleet.latest.save_gate = asyncio.Event()
        playing = asyncio.create_task(play_step(service, 2))
        await retry_until(lambda: service.status().state is S.WEIGHT_EXPORTING)
        await service.configure(changed(config, batch={"tasks": 1}))
        await service.stop()
        await asyncio.gather(playing, return_exceptions=True)
        assert service.status().step == 1
        await service.start()
        assert service.pool().tasks_target == 1
        assert service.pool().episodes_finished == 0
        await play_all(service)
        assert [m.groups for m in service.metrics(0)] == [2, 1, 1]


def test_the_docs_show_the_table_as_it_is():
    page = Path(__file__).parents[3] / "docs" / "concepts" / "configuration.md"
    text = page.read_text(encoding="utf-8").partition("<!-- effects:begin")[2]
    rows = re.findall(
        r"^\| `(\S+)` \| (\w+) \|$", text.partition("<!-- effects:end")[0], re.MULTILINE
    )
    assert rows == [(key, effect.value) for key, effect in EFFECTS.items()]
