"""What the status says while nothing moves: whoever could move it is named."""

from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.states import GrantOutcome
from swarm.testing.server_fixture import take, toy_service


async def test_seats_that_only_one_task_can_fill_are_named_while_nobody_plays(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2)) as service:
        first, second = [await take(service, "only-here") for _ in range(2)]
        await service.finish(first.episode_id, FinishRequest(reward=1.0))
        assert "only-here" not in service.status().waiting_for  # somebody plays
        await service.abort(second.episode_id, AbortRequest())
        # Under the rule `wait` another task cannot go on in its place.
        other = await take(service, "elsewhere")
        assert other.outcome is GrantOutcome.WAIT
        assert "; 1 more of task default/only-here" in service.status().waiting_for


async def test_only_a_few_of_many_such_tasks_are_named(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=9, repeat=2)) as service:
        grants = [await take(service, f"t{i}") for i in range(9)]
        for grant in grants:
            await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        words = service.status().waiting_for
    assert "; 1 more of task default/t0, default/t1, default/t2 and others" in words
