"""A promise in asynchronous mode: it outlives the steps that its tokens may train in."""

from swarm.protocol.episodes import FinishRequest
from swarm.testing import retry_until
from swarm.testing.server_fixture import ask, play, take, toy_service


async def prepared(service, task):
    grant = await take(service, task)
    await ask(service, grant)
    assert (await service.prepare(grant.episode_id, FinishRequest(reward=1.0))).prepared
    return grant


async def step(service, task):
    before = service.status()
    for reward in (0.0, 1.0):
        assert (await play(service, task, reward=lambda *_, reward=reward: reward)).accepted
    await retry_until(
        lambda: (
            service.status().policy_version.n > before.policy_version.n
            and service.status().step > before.step
        )
    )


def config_of(make_config, **more):
    values = {"tasks": 1, "repeat": 2, "oversample": 2.0, "stop_at_step": 9}
    return make_config(**values, enabled=True, max_staleness=1, **more)


async def test_a_prepared_episode_goes_on_with_its_group_in_the_next_step(tmp_path, make_config):
    async with toy_service(tmp_path, config_of(make_config)) as service:
        grant = await prepared(service, "b")
        await step(service, "a")
        assert (await service.commit(grant.episode_id)).accepted
        assert (await play(service, "b", reward=lambda *_: 0.0)).accepted
        await retry_until(lambda: service.status().policy_version.n == 2)
        assert service.trace(grant.episode_id, calls=False).consumed_step == 2


async def test_a_commit_of_tokens_that_grew_too_old_is_taken_and_then_dropped_as_stale(
    tmp_path, make_config
):
    async with toy_service(tmp_path, config_of(make_config)) as service:
        grant = await prepared(service, "b")
        for task in ("a1", "a2", "a3"):
            await step(service, task)
        assert (await service.commit(grant.episode_id)).accepted
        await step(service, "a4")
        trace = service.trace(grant.episode_id, calls=True)
        assert (trace.consumed_step, trace.calls[0].fate_reason) == (None, "stale")
