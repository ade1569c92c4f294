"""A finish may carry advantages, weights and masks for single tokens: an algorithm that is tried from a laptop."""

import pytest

from swarm.protocol.episodes import CallTokens, FinishRequest
from swarm.protocol.errors import TokensError
from swarm.protocol.states import FateReason, TokenFate
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import ask, take, toy_service


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        ([{"call_index": 1}], "names a call that is not there: 1"),
        ([{"call_index": -1}], "names a call that is not there: -1"),
        ([{"call_index": 0}, {"call_index": 0}], "names call twice: 0"),
        ([{"call_index": 0, "advantages": [1.0]}], "'advantages' of call 0 has 1 values for 4"),
        ([{"call_index": 0, "weights": [1.0] * 5}], "'weights' of call 0 has 5 values for 4"),
        ([{"call_index": 0, "mask": [True] * 3}], "'mask' of call 0 has 3 values for 4"),
        ([{"call_index": 0, "advantages": [1.0, float("nan"), 0, 0]}], "holds nan"),
        ([{"call_index": 0, "advantages": [1e300, 0, 0, 0]}], "holds 1e"),
        ([{"call_index": 0, "weights": [1.0, -0.5, 0, 0]}], "holds -0.5"),
        ([{"call_index": 0, "weights": [1.0, float("inf"), 0, 0]}], "holds inf"),
    ],
)
async def test_what_does_not_fit_the_tokens_is_refused_and_the_episode_stays_as_it_was(
    tmp_path, make_config, tokens, problem
):
    async with toy_service(tmp_path, make_config(), fleet=ToyFleet(lambda _: "123")) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        with pytest.raises(TokensError, match=problem) as refused:
            await service.finish(grant.episode_id, FinishRequest(reward=1.0, tokens=tokens))
        assert (refused.value.status, refused.value.code) == (422, "tokens_invalid")
        assert service.status().open_episodes == 1
        assert (await service.finish(grant.episode_id, FinishRequest(reward=1.0))).accepted


async def test_own_advantages_weights_and_masks_reach_the_engine_the_account_and_the_trace(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _: "123")  # three tokens and the end
    config = make_config(tasks=1, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        first, second = await take(service, "a"), await take(service, "a")
        for grant in (first, second):
            await ask(service, grant)
        own = CallTokens(
            call_index=0,
            advantages=[0.1, 0.2, 0.3, 0.4],
            weights=[1.0, 2.0, 0.0, 1.0],
            mask=[True, True, True, False],
        )
        await service.finish(first.episode_id, FinishRequest(reward=1.0, tokens=[own]))
        await service.finish(second.episode_id, FinishRequest(reward=1.0))
        await retry_until(lambda: service.status().step == 1)
        (row,) = fleet.latest.batches[0].rows
        assert (row.advantages, row.weights, row.weight) == ([0.1, 0.2], [1.0, 2.0], 0.5)
        metrics = service.metrics(0)[0]
        assert metrics.tokens == {"masked:client_mask": 2, "masked:zero_advantage": 4, "trained": 2}
        (call,) = service.trace(first.episode_id, calls=True).calls
        assert (call.fate, call.advantages) == (TokenFate.TRAINED, own.advantages)
        assert call.token_mask == [True, True, False, False]
        (plain,) = service.trace(second.episode_id, calls=True).calls
        assert (plain.fate_reason, plain.advantages) == (FateReason.ZERO_ADVANTAGE, [])


async def test_c3_trains_a_group_of_equal_rewards_when_a_client_chose_advantages(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _: "1")
    config = make_config(tasks=1, repeat=2, stop_at_step=1, policy="C3")
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        for _ in range(2):
            grant = await take(service, "a")
            await ask(service, grant)
            own = CallTokens(call_index=0, advantages=[1.0, -1.0])
            await service.finish(grant.episode_id, FinishRequest(reward=0.0, tokens=[own]))
        await retry_until(lambda: service.status().step == 1)
        metrics = service.metrics(0)[0]
        assert (metrics.updated, metrics.groups_tried, metrics.tokens) == (True, 1, {"trained": 4})


async def test_an_undone_update_books_its_tokens_as_rolled_back_in_account_and_trace(
    tmp_path, make_config
):
    fleet = ToyFleet(lambda _: "1")
    fleet.prepare = lambda engine: engine.roll_back_steps.add(1)
    config = make_config(tasks=1, repeat=2, stop_at_step=9)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grants = []
        for step in range(3):
            for i in range(2):
                grant = await take(service, f"t{step}")
                grants.append(grant)
                await ask(service, grant)
                await service.finish(grant.episode_id, FinishRequest(reward=float(i)))
            await retry_until(lambda step=step: service.status().step == step + 1)
        undone, done = service.metrics(0)[:2]
        assert undone.tokens == {"masked:rolled_back": 4}
        assert (undone.updated, done.tokens) == (False, {"trained": 4})
        for source in ("memory", "journal"):
            if source == "journal":
                service._core.book.forget_ended_before(99)
            (call,) = service.trace(grants[0].episode_id, calls=True).calls
            assert (call.fate_reason, call.advantages) == (FateReason.ROLLED_BACK, []), source
            (call,) = service.trace(grants[2].episode_id, calls=True).calls
            assert call.fate is TokenFate.TRAINED, source
