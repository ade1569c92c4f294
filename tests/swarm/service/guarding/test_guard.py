"""The episode guard in a running service: off unless asked, by action, per agent, and over a restart."""

from dataclasses import dataclass, field

import pytest

from swarm.protocol.config import GuardConfig
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.records import StepMetrics
from swarm.protocol.states import EpisodeKind, EpisodeState, FateReason
from swarm.server.service.guarding.judge import TOLD
from swarm.testing import ToyFleet
from swarm.testing.server_fixture import ask, take, toy_service
from swarm.testing.waiting import retry_until

LOOP = "again and " * 30
GOOD = "The answer is 12, I am sure."


@dataclass
class Voice:
    """What the toy model says next; the last line stays."""

    lines: list[str] = field(default_factory=lambda: [GOOD])

    def __call__(self, _request: object) -> str:
        return self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]


async def finished(
    service, voice: Voice, text: str, reward: float, task: str = "a", turns: int = 1
):
    """Play one episode whose last answer is ``text``; returns its id and what its finish was told."""
    grant = await take(service, task)
    voice.lines = [GOOD] * (turns - 1) + [text]
    await ask(service, grant, turns)
    reply = await service.finish(grant.episode_id, FinishRequest(reward=reward))
    return grant.episode_id, reply


async def step_of(service) -> StepMetrics:
    await retry_until(lambda: service.status().step == 1)
    return service.metrics(0)[0]


def one_group(make_config, **guard):
    return make_config(tasks=1, repeat=2, stop_at_step=1, guard=GuardConfig(**guard))


async def test_guard_is_off_by_default_and_then_marks_nothing(tmp_path, make_config):
    voice = Voice()
    async with toy_service(tmp_path, one_group(make_config), fleet=ToyFleet(voice)) as service:
        first, _ = await finished(service, voice, LOOP, 0.0)
        await finished(service, voice, GOOD, 1.0)
        assert (await step_of(service)).guard == {}
        assert service.trace(first, calls=True).calls[0].guard == []


async def test_count_only_counts(tmp_path, make_config):
    voice = Voice()
    config = one_group(make_config, loop="count")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        await finished(service, voice, LOOP, 0.0)
        await finished(service, voice, GOOD, 1.0)
        metrics = await step_of(service)
        assert metrics.guard == {"loop:count": 1}
        assert set(metrics.tokens) == {"trained"}


async def test_masked_call_does_not_train_and_the_rest_of_its_episode_does(tmp_path, make_config):
    voice = Voice()
    config = one_group(make_config, loop="mask")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        first, reply = await finished(service, voice, LOOP, 0.0, turns=2)
        await finished(service, voice, GOOD, 1.0)
        metrics = await step_of(service)
        assert reply.accepted
        calls = service.trace(first, calls=True).calls
        assert [c.fate_reason for c in calls] == [FateReason.NONE, FateReason.GUARD]
        assert calls[1].guard == ["loop:mask"]
        assert metrics.guard == {"loop:mask": 1}
        assert metrics.tokens["masked:episode_guard"] == len(calls[1].sampled_ids)
        assert metrics.reward_mean == 0.5  # the reward stands


async def test_zero_replaces_the_reward_and_keeps_what_was_told(tmp_path, make_config):
    voice = Voice()
    config = one_group(make_config, loop="zero", reward=-1.0)
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        first, _ = await finished(service, voice, LOOP, 0.75)
        await finished(service, voice, GOOD, 0.5)
        metrics = await step_of(service)
        trace = service.trace(first, calls=False)
        assert (trace.reward, trace.metrics[TOLD]) == (-1.0, 0.75)
        assert metrics.reward_mean == pytest.approx(-0.25)
        assert set(metrics.tokens) == {"trained"}  # a bad answer is trained away from


async def test_dropped_episode_frees_its_seat_and_tells_its_client_why(tmp_path, make_config):
    voice = Voice()
    config = one_group(make_config, loop="drop")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        first, reply = await finished(service, voice, LOOP, 0.0)
        assert (reply.accepted, reply.state) == (False, EpisodeState.ABORTED)
        assert reply.reason == "episode_guard: loop in call 0"
        again = await service.finish(first, FinishRequest(reward=1.0))
        assert again == reply
        for reward in (0.0, 1.0):
            await finished(service, voice, GOOD, reward)
        metrics = await step_of(service)
        assert metrics.episodes_dropped == {"episode_guard": 1}
        assert metrics.guard == {"loop:drop": 1}
        assert "dropped:episode_guard" in metrics.tokens


async def test_model_that_only_loops_does_not_hold_the_step_for_ever(tmp_path, make_config):
    voice = Voice()
    config = one_group(make_config, loop="drop")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        # Two are dropped, as many as the step consumes; then they are masked.
        accepted = [
            (await finished(service, voice, LOOP, float(n % 2)))[1].accepted for n in range(4)
        ]
        metrics = await step_of(service)
        assert accepted == [False, False, True, True]
        assert metrics.guard == {"loop:drop": 2, "loop:mask": 2}


async def test_evaluation_is_never_touched(tmp_path, make_config):
    voice = Voice([LOOP])
    config = one_group(make_config, loop="drop")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        grant = await take(service, "a", kind=EpisodeKind.EVAL)
        await ask(service, grant)
        reply = await service.finish(grant.episode_id, FinishRequest(reward=0.5))
        assert reply.accepted
        assert service.trace(grant.episode_id, calls=True).calls[0].guard == []


async def test_prepared_finish_is_judged_before_it_is_promised(tmp_path, make_config):
    voice = Voice([LOOP])
    config = one_group(make_config, loop="drop")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        reply = await service.prepare(grant.episode_id, FinishRequest(reward=0.5))
        assert not reply.prepared
        assert "episode_guard" in reply.reason


async def test_zeroed_reward_of_a_prepared_finish_is_the_one_that_is_committed(
    tmp_path, make_config
):
    voice = Voice([LOOP])
    config = one_group(make_config, loop="zero")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        assert (await service.prepare(grant.episode_id, FinishRequest(reward=0.5))).prepared
        await service.commit(grant.episode_id)
        assert service.trace(grant.episode_id, calls=False).reward == 0.0


async def test_findings_of_a_step_are_counted_again_after_a_restart(tmp_path, make_config):
    voice = Voice()
    config = one_group(make_config, loop="drop", special_tokens="mask")
    async with toy_service(tmp_path, config, fleet=ToyFleet(voice)) as service:
        await finished(service, voice, LOOP, 0.0)
        await finished(service, voice, "12 <|im_start|> 13", 0.0)
    async with toy_service(tmp_path, resume=True, fleet=ToyFleet(voice)) as service:
        await finished(service, voice, GOOD, 1.0)
        metrics = await step_of(service)
        assert metrics.guard == {"loop:drop": 1, "special_tokens:mask": 1}


async def test_groups_that_play_the_prompt_of_an_evaluation_are_counted(tmp_path, make_config):
    config = make_config(tasks=2, repeat=2, stop_at_step=1)
    async with toy_service(tmp_path, config, fleet=ToyFleet(Voice())) as service:
        shown = await take(service, "held-out", kind=EpisodeKind.EVAL)
        group = shown.group_id  # ``ask`` writes it into the prompt
        await ask(service, shown)
        await service.finish(shown.episode_id, FinishRequest(reward=0.5))
        for task, prompt in (("leaked", group), ("fresh", "else")):
            for reward in (0.0, 1.0):
                grant = await take(service, task)
                await ask(service, grant.model_copy(update={"group_id": prompt}))
                await service.finish(grant.episode_id, FinishRequest(reward=reward))
        assert (await step_of(service)).eval_overlap == 1


async def test_overlap_is_unknown_and_not_zero_without_an_evaluation(tmp_path, make_config):
    voice = Voice()
    async with toy_service(tmp_path, one_group(make_config), fleet=ToyFleet(voice)) as service:
        for reward in (0.0, 1.0):
            await finished(service, voice, GOOD, reward)
        assert (await step_of(service)).eval_overlap is None
