"""A trace says the same from memory and from the journal, before and after a restart."""

import pytest

from swarm.protocol.episodes import AbortRequest, AgentKeyRequest, CallTokens, FinishRequest
from swarm.protocol.states import EpisodeKind
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet, retry_until
from swarm.testing.server_fixture import BASE_URL, ask, reply_to, take, toy_service

FATES = ("fate", "fate_reason", "agent", "parent", "advantages", "token_mask")


def told(service, grants):
    traces = [service.trace(grant.episode_id, calls=True) for grant in grants.values()]
    return {
        name: (
            trace.state,
            trace.reward,
            trace.rewards,
            trace.agents,
            (trace.consumed_step, trace.reason, trace.call_count),
            [[getattr(call, field) for field in FATES] for call in trace.calls],
        )
        for name, trace in zip(grants, traces, strict=True)
    }


async def play_all_kinds(service):
    """One step with an episode of each kind of end; returns the grants by what became of them."""
    grants = {"trained": await take(service, "a"), "agents": await take(service, "a")}
    grants["late"] = await take(service, "b")
    grants["eval"] = await take(service, "x", kind=EpisodeKind.EVAL)
    for name in ("trained", "late", "eval"):
        await ask(service, grants[name], turns=2)
    episode_id = grants["agents"].episode_id
    for agent, train in (("seer", True), ("judge", False)):
        request = AgentKeyRequest(agent=agent, train=train)
        key = service.agent_key(episode_id, request, base_url=BASE_URL).api_key
        caller = service.caller_of(key)
        messages = [{"role": "user", "content": "Go."}]
        await reply_to(service, caller.episode, ChatCall(messages=messages, agent=agent))
    await ask(service, grants["agents"])
    gone = grants["aborted"] = await take(service, "b")
    await ask(service, gone)
    await service.abort(gone.episode_id, AbortRequest(reason="broke"))
    await service.finish(grants["eval"].episode_id, FinishRequest())
    own = CallTokens(call_index=0, advantages=[0.5, -0.5], mask=[True, False])
    await service.finish(
        grants["trained"].episode_id, FinishRequest(reward=1.0, tokens=[own], metrics={"m": 1.0})
    )
    await service.finish(episode_id, FinishRequest(reward=0.0, rewards={"seer": 2.0}))
    return grants


async def test_a_trace_from_the_journal_has_the_fate_of_each_call(tmp_path, make_config):
    fleet = ToyFleet(lambda _: "1")
    config = make_config(tasks=1, repeat=2, oversample=2.0, stop_at_step=2, drain_deadline_s=0.0)
    async with toy_service(tmp_path, config, fleet=fleet) as service:
        grants = await play_all_kinds(service)
        await retry_until(lambda: service.status().step == 1)
        memory = told(service, grants)
        book = service._core.book
        book.keep = 0
        book.forget_ended_before(99)
        for name in ("aborted", "eval", "late"):
            book._by_id.pop(grants[name].episode_id, None)
        assert all(book.get(grant.episode_id) is None for grant in grants.values())
        journal = told(service, grants)
        assert journal == memory
    reasons = {name: [call[1] for call in value[-1]] for name, value in journal.items()}
    assert reasons == {
        "trained": ["", ""],
        "agents": ["zero_advantage", "agent_not_trained", ""],
        "late": ["leftover", "leftover"],
        "eval": ["eval", "eval"],
        "aborted": ["episode_aborted"],
    }
    async with toy_service(tmp_path, resume=True) as service:
        assert told(service, grants) == journal


@pytest.mark.every_engine
async def test_a_trace_of_an_episode_that_waits_in_the_pool_has_no_fates_yet(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        grant = await take(service, "a")
        await ask(service, grant, turns=2)
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
    async with toy_service(tmp_path, resume=True) as service:
        first, second = service.trace(grant.episode_id, calls=True).calls
        assert (first.fate, second.fate) == (None, None)
        assert (first.parent, second.parent) == (None, 0)


@pytest.mark.every_engine
@pytest.mark.parametrize("expired", [False, True])
async def test_a_late_result_is_told_which_version_it_missed(tmp_path, make_config, expired):
    config = make_config(tasks=1, repeat=2, stop_at_step=3)
    async with toy_service(tmp_path, config) as service:
        lost = await take(service, "a")
        await service.abort(lost.episode_id, AbortRequest(reason="no luck"))
        for step in range(2 if expired else 1):
            for i in range(2):
                grant = await take(service, "a")
                await ask(service, grant)
                await service.finish(grant.episode_id, FinishRequest(reward=float(i)))
            await retry_until(lambda step=step: service.status().step == step + 1)
        if expired:
            service._core.book.forget_ended_before(99)
        late = await service.finish(lost.episode_id, FinishRequest(reward=1.0))
        assert not late.accepted
        assert late.reason.startswith("no luck; it was granted at step 0 for policy version 0")
