import pytest

from swarm.protocol.episodes import FinishRequest
from swarm.protocol.states import EngineState, GrantOutcome
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import ask, play, play_step, take, toy_service


def total_tokens(metrics):
    return sum(metrics.tokens.values())


@pytest.mark.parametrize("workers", [1, 7, 64])
async def test_c2_consumes_exactly_b_groups_whatever_the_parallelism(
    tmp_path, make_config, workers
):
    async with toy_service(tmp_path, make_config(tasks=4, repeat=3)) as service:
        await play_step(service, workers)
        await play_step(service, workers)
        await retry_until(lambda: service.status().state is EngineState.TRAINED)
        for metrics in service.metrics(0):
            assert (metrics.groups, metrics.episodes) == (4, 12)
            assert metrics.updated
            assert metrics.turns_mean == 2.0
            assert metrics.calls == 24
            assert set(metrics.tokens) == {"trained"}
            assert metrics.response_tokens_mean == total_tokens(metrics) / 24
            assert metrics.episodes_dropped == {}
        status = service.status()
        assert (status.step, status.policy_version.n) == (2, 2)


@pytest.mark.every_engine
async def test_a_trained_server_answers_training_complete_and_keeps_its_weights(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        before = service.status().fingerprint
        await play_step(service, 3)
        await retry_until(lambda: service.status().state is EngineState.TRAINED)
        after = service.status().fingerprint
        assert before != after == service.metrics(0)[0].fingerprint
        assert (await take(service, "a")).outcome is GrantOutcome.TRAINING_COMPLETE


async def test_rows_weigh_every_trained_token_the_same_and_follow_the_keys(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(stop_at_step=1), fleet=fleet) as service:
        await play_step(service, 4)
        await retry_until(lambda: service.status().step == 1)
        (batch,) = fleet.latest.batches
        tokens = sum(len(row.logprobs) for row in batch.rows)
        assert [row.key for row in batch.rows] == sorted(row.key for row in batch.rows)
        assert {row.weight for row in batch.rows} == {1.0 / tokens}
        assert service.metrics(0)[0].tokens == {"trained": tokens}
        assert (batch.step, batch.policy_version) == (1, 1)


@pytest.mark.every_engine
async def test_c1_trains_on_b_times_n_episodes_of_any_tasks(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(policy="C1", stop_at_step=1)) as service:
        for task in ("a", "b", "c", "d", "e"):
            assert (await play(service, task)).accepted
        assert service.status().state is EngineState.ROLLING
        last = await take(service, "a")
        assert (await take(service, "f")).outcome is GrantOutcome.WAIT
        await ask(service, last)
        await service.finish(last.episode_id, FinishRequest(reward=9.0))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.episodes, metrics.groups) == (6, 5)


@pytest.mark.every_engine
async def test_a_step_of_equal_rewards_advances_the_step_and_not_the_version(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(stop_at_step=1)) as service:
        before = service.status()
        await play_step(service, 3, reward=lambda _grant, _replies: 1.0)
        await retry_until(lambda: service.status().step == 1)
        after, metrics = service.status(), service.metrics(0)[0]
        assert after.policy_version == before.policy_version
        assert after.fingerprint == before.fingerprint == metrics.fingerprint
        assert not metrics.updated
        assert metrics.zero_advantage_share == 1.0
        assert set(metrics.tokens) == {"masked:zero_advantage"}
        assert metrics.loss is None


@pytest.mark.every_engine
async def test_c3_replaces_groups_of_equal_rewards(tmp_path, make_config):
    config = make_config(policy="C3", stop_at_step=1)

    def dull_at_first(grant, replies):
        return 0.0 if grant.group_id in ("s0.g0", "s0.g1") else float(grant.repeat_index)

    async with toy_service(tmp_path, config) as service:
        await play_step(service, 5, reward=dull_at_first)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.updated) == (2, True)
        assert metrics.zero_advantage_share == 0.0
        assert metrics.episodes_dropped == {"zero_advantage": 6}
        assert set(metrics.tokens) == {"trained", "masked:zero_advantage"}


@pytest.mark.every_engine
async def test_c3_gives_up_after_its_bound_of_groups(tmp_path, make_config):
    config = make_config(policy="C3", stop_at_step=1, max_groups_factor=3)
    async with toy_service(tmp_path, config) as service:
        await play_step(service, 4, reward=lambda _grant, _replies: 0.0)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.updated) == (0, False)
        assert metrics.episodes_dropped == {"zero_advantage": 18}


@pytest.mark.every_engine
async def test_oversampled_groups_are_left_over_and_counted(tmp_path, make_config):
    config = make_config(oversample=2.0, stop_at_step=1)
    async with toy_service(tmp_path, config) as service:
        spare = await take(service, "spare")
        late = await take(service, "late")
        (reply,) = await ask(service, spare)
        await service.finish(spare.episode_id, FinishRequest(reward=1.0))
        for task in ("a", "b"):
            for _ in range(3):
                await play(service, task, turns=1)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.groups, metrics.episodes) == (2, 6)
        assert metrics.episodes_dropped == {"leftover": 2}
        assert metrics.tokens["dropped:leftover"] == reply.completion_tokens
        answer = await service.finish(late.episode_id, FinishRequest(reward=1.0))
        assert not answer.accepted
        assert "policy version 0" in answer.reason


async def test_an_undone_update_advances_the_step_only_and_says_why(tmp_path, make_config):
    fleet = ToyFleet()
    fleet.prepare = lambda engine: engine.roll_back_steps.add(1)
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        before = service.status().fingerprint
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert not metrics.updated
        assert "not finite" in metrics.rolled_back
        assert (service.status().policy_version.n, service.status().fingerprint) == (0, before)
        await play_step(service, 3)
        await retry_until(lambda: service.status().step == 2)
        assert service.status().policy_version.n == 1


async def test_an_episode_has_only_its_own_calls_and_their_fates(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2, stop_at_step=1)) as service:
        one, two = await take(service, "a"), await take(service, "a")
        first, second = await ask(service, one, 2), await ask(service, two, 1)
        assert [c.sampled_ids for c in service.trace(one.episode_id, calls=True).calls] == [
            reply.token_ids for reply in first
        ]
        assert first[0].token_ids != second[0].token_ids
        await service.finish(one.episode_id, FinishRequest(reward=1.0))
        await service.finish(two.episode_id, FinishRequest(reward=0.0))
        await retry_until(lambda: service.status().step == 1)
        trace = service.trace(two.episode_id, calls=True)
        assert (trace.call_count, trace.calls[0].fate) == (1, "trained")
