"""What watchers read: traffic, recent errors, progress under each policy, and the overview as a whole."""

from __future__ import annotations

import math

import pytest

from swarm.protocol.clients import AgreeRequest, ClientRegistration
from swarm.protocol.config import BatchConfig
from swarm.protocol.episodes import AbortRequest, FinishRequest
from swarm.protocol.errors import JournalFailed
from swarm.protocol.overview import Overview
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState
from swarm.server.service.groups import Pool
from swarm.server.service.overview import MOST_ROWS
from swarm.server.service.progress import Votes, progress
from swarm.server.service.recent import KEEP, TEXT_LIMIT, RecentErrors
from swarm.server.service.traffic import CallOutcome, Traffic
from swarm.testing import ManualClock, ToyFleet, retry_until
from swarm.testing.server_fixture import ask, play_step, take, toy_service


async def test_the_token_rate_is_that_of_the_last_ten_seconds():
    clock = ManualClock()
    traffic = Traffic(clock)
    assert traffic.per_second() == 0.0
    traffic.sampled(30)
    assert traffic.per_second() == 30.0  # the first second counts as a whole one
    await clock.advance(5)
    traffic.sampled(20)
    assert traffic.per_second() == 10.0
    await clock.advance(7)
    assert traffic.per_second() == 2.0  # the first thirty are twelve seconds old
    await clock.advance(60)
    assert (traffic.per_second(), traffic.sampled_tokens) == (0.0, 50)


def test_call_durations_fall_into_buckets_by_upper_bound():
    traffic = Traffic(ManualClock())
    for seconds in (0.0, 0.01, 0.02, 1.0, 1000.0):
        traffic.call(CallOutcome.ANSWERED, seconds)
    traffic.call(CallOutcome.UNANSWERED, 5.0)
    assert traffic.call_seconds[:2] == [2, 1]
    assert traffic.call_seconds[6] == 1
    assert traffic.call_seconds[-1] == 1
    assert (sum(traffic.call_seconds), traffic.calls[CallOutcome.UNANSWERED]) == (5, 1)
    assert traffic.call_seconds_sum == pytest.approx(1001.03)


def test_equal_errors_in_a_row_are_one_with_a_count_and_old_ones_go():
    recent = RecentErrors(ManualClock())
    for i in range(300):
        recent.note("episode_aborted", f"task {i}: the engine was stopped", cause="stopped")
    (only,) = recent.newest(evals=True)
    assert only.text == "300 times, the first: task 0: the engine was stopped"
    for i in range(2 * KEEP):
        recent.note("failed", f"{i} " + "x" * 1000)
    newest = recent.newest(evals=True)
    assert len(newest) == KEEP
    assert newest[0].text.startswith(f"{2 * KEEP - 1} ")
    assert {len(error.text) for error in newest} == {TEXT_LIMIT}


async def filled(service, counts):
    """Play groups with that many finished members, of rewards 0, 1, 0, ...; a count of "=" has two equal ones."""
    for i, count in enumerate(counts):
        rewards = [1.0, 1.0] if count == "=" else [float(seat % 2) for seat in range(count)]
        for reward in rewards:
            grant = await take(service, f"t{i}")
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
    return service.monitor.overview()


@pytest.mark.parametrize(
    ("policy", "counts", "share", "words"),
    [
        ("C1", [2, 1], 3 / 8, "3 of 8 episodes finished"),
        ("C2", [2, 1], 1.5 / 4, "1 of 4 groups complete"),
        ("C2", [], 0.0, "0 of 4 groups complete"),
        ("C2", [2, 2, 2, 1], 3.5 / 4, "3 of 4 groups complete"),
        ("C3", [2, 1, "="], 1 / 4, "1 of 4 groups complete with rewards that differ"),
    ],
)
async def test_progress_counts_what_the_policy_counts(
    tmp_path, make_config, policy, counts, share, words
):
    async with toy_service(tmp_path, make_config(tasks=4, repeat=2, policy=policy)) as service:
        view = await filled(service, counts)
        assert (view.policy, view.progress_text) == (policy, words)
        assert view.progress == pytest.approx(share)


async def test_progress_in_a_mix_needs_every_task_set(tmp_path, make_config):
    config = make_config(tasks=4, repeat=1, mix={"default": 0.5, "code": 0.5})
    async with toy_service(tmp_path, config) as service:
        view = await filled(service, [1, 1])
        assert view.progress == 0.5
        assert "default 2 of 2, code 0 of 2" in view.progress_text


@pytest.mark.parametrize(("policy", "share"), [("C4", 0.5), ("C5", 1.0)])
async def test_progress_under_agreement_counts_trainers(tmp_path, make_config, policy, share):
    async with toy_service(tmp_path, make_config(policy=policy)) as service:
        for name in ("a", "b"):
            service.register(ClientRegistration(client_id=name))
        assert service.monitor.overview().progress == 0.0
        service.agree("a", AgreeRequest(for_step=0))
        view = service.monitor.overview()
        assert view.progress == share
        assert "1 of 2 trainers agree" in view.progress_text


@pytest.mark.parametrize("state", list(EngineState))
def test_progress_says_what_every_state_means(state):
    seen = progress(Pool(0, BatchConfig()), state, Votes(0, 0))
    assert 0.0 <= seen.share <= 1.0
    assert seen.text


async def test_the_overview_of_a_new_server_shows_that_there_is_nothing(tmp_path):
    async with toy_service(tmp_path) as service:
        view = service.monitor.overview()
        assert view.status.state is EngineState.OFFLINE
        assert (view.progress, view.running, view.groups, view.clients) == (0.0, [], [], [])
        assert view.tokens_per_s == 0.0
        assert Overview.model_validate_json(view.model_dump_json()) == view


async def test_the_overview_lists_the_longest_idle_first_and_a_pending_call_is_not_idle(
    tmp_path, make_config
):
    clock, fleet = ManualClock(), ToyFleet()
    async with toy_service(
        tmp_path, make_config(tasks=2, repeat=2), fleet=fleet, clock=clock
    ) as service:
        grants = []
        for task in ("a", "a", "b"):
            grants.append(await take(service, task))
            await clock.advance(3)
        await ask(service, grants[0])
        await clock.advance(1)
        view = service.monitor.overview()
        assert [one.episode_id for one in view.running] == [grants[i].episode_id for i in (1, 2, 0)]
        idle = {one.episode_id: one for one in view.running}
        assert idle[grants[1].episode_id].idle_s == pytest.approx(7.0)
        assert idle[grants[1].episode_id].idle_left_s == pytest.approx(113.0)
        assert (idle[grants[0].episode_id].calls, idle[grants[0].episode_id].idle_s) == (1, 1.0)
        assert idle[grants[0].episode_id].age_s == pytest.approx(10.0)
        assert view.step_age_s == pytest.approx(10.0)
        assert view.tokens_per_s > 0


async def test_the_overview_shows_groups_with_the_mean_and_spread_of_what_finished(
    tmp_path, make_config
):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=3)) as service:
        for reward in (1.0, 3.0):
            grant = await take(service, "a")
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=reward))
        await take(service, "b")
        first, second = service.monitor.overview().groups
        assert (first.task_id, first.finished, first.open, first.missing) == ("a", 2, 0, 1)
        assert (first.reward_mean, first.reward_std) == (2.0, 1.0)
        assert (second.finished, second.open, second.reward_mean) == (0, 1, None)
        assert second.reward_std is None


async def test_a_lost_episode_is_a_recent_error_and_one_left_behind_is_not(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        hostile = "\x1b[31mred[/red] <script>"
        lost = await take(service, "a", client_id="mallory")
        await service.abort(lost.episode_id, AbortRequest(reason=hostile))
        slow = await take(service, "a")
        await clock.advance(121)
        assert service.trace(slow.episode_id, calls=False).state is EpisodeState.EXPIRED
        errors = service.monitor.overview().errors
        assert [error.kind for error in errors] == ["episode_expired", "episode_aborted"]
        assert hostile in errors[1].text  # as it came: whoever shows it makes it safe
        assert "mallory" in errors[1].text
        for _ in range(2):
            grant = await take(service, "a")
            await ask(service, grant)
            await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        await retry_until(lambda: service.status().step == 1)
        assert len(service.monitor.overview().errors) == 2


async def test_evaluation_is_left_out_of_the_view_of_a_trainer(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        secret = await take(service, "held-out", kind=EpisodeKind.EVAL)
        await take(service, "a")
        lost = await take(service, "held-out-2", kind=EpisodeKind.EVAL)
        await service.abort(lost.episode_id, AbortRequest(reason="x"))
        everything = service.monitor.overview().model_dump_json()
        assert secret.episode_id in everything
        assert "held-out-2" in everything
        trainers = service.monitor.overview(evals=False)
        assert "held-out" not in trainers.model_dump_json()
        assert trainers.running_total == 1


async def test_a_crowd_is_cut_to_what_one_look_can_show_and_counted_whole(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        for i in range(MOST_ROWS + 5):
            await take(service, f"e{i}", kind=EpisodeKind.EVAL)
        view = service.monitor.overview()
        assert (len(view.running), view.running_total) == (MOST_ROWS, MOST_ROWS + 5)
        assert service.monitor.open_episodes(EpisodeKind.EVAL) == MOST_ROWS + 5


async def test_clients_and_engine_restarts_are_seen(tmp_path, make_config):
    fleet = ToyFleet()
    async with toy_service(tmp_path, make_config(), fleet=fleet) as service:
        service.register(ClientRegistration(client_id="c1"))
        fleet.latest.kill("killed by signal 9")
        await retry_until(lambda: service.status().engine_restarts == 1)
        await retry_until(lambda: service.status().state is EngineState.ROLLING)
        view = service.monitor.overview()
        assert [client.client_id for client in view.clients] == ["c1"]
        assert view.errors[0].kind == "engine_restart"
        assert "signal 9" in view.errors[0].text


async def test_totals_add_up_over_steps_and_match_the_steps_records(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=2, stop_at_step=2)) as service:
        for step in (1, 2):
            await play_step(service, 4)
            await retry_until(lambda step=step: service.status().step == step)
        traffic, metrics = service.monitor.traffic, service.metrics(0)
        booked = math.fsum(sum(m.tokens.values()) for m in metrics)
        assert sum(traffic.booked_tokens.values()) == booked == traffic.sampled_tokens
        assert traffic.calls[CallOutcome.ANSWERED] == sum(m.calls for m in metrics)
        assert traffic.episodes[EpisodeKind.TRAIN, EpisodeState.FINISHED] == 8
        last = service.monitor.last_step()
        assert last is not None
        assert last.step == 2


async def test_a_journal_that_cannot_be_written_is_a_recent_error(tmp_path, make_config):
    async with toy_service(tmp_path, make_config()) as service:
        service._core.journal._db.execute("PRAGMA query_only = 1")
        for _ in range(3):
            with pytest.raises(JournalFailed):
                await take(service, "a")
        (error,) = service.monitor.overview().errors
        service._core.journal._db.execute("PRAGMA query_only = 0")
        assert error.kind == "journal_failed"
        assert error.text.startswith("3 times")


async def test_an_update_that_was_undone_is_a_recent_error(tmp_path, make_config):
    fleet = ToyFleet()
    fleet.prepare = lambda engine: engine.roll_back_steps.add(1)
    async with toy_service(tmp_path, make_config(stop_at_step=1), fleet=fleet) as service:
        await play_step(service, 4)
        await retry_until(lambda: service.status().step == 1)
        errors = service.monitor.overview().errors
        assert [error.kind for error in errors] == ["warning"]
        assert "undone" in errors[0].text


async def test_a_prepared_episode_is_shown_with_the_end_of_its_promise(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(), clock=clock) as service:
        grant = await take(service, "a")
        await ask(service, grant)
        reply = await service.prepare(grant.episode_id, FinishRequest(reward=1.0))
        await clock.advance(1)
        (one,) = service.monitor.overview().running
        assert one.prepared
        assert one.idle_left_s == pytest.approx(reply.commit_within_s - 1)


async def test_groups_dropped_for_new_code_are_a_recent_error_that_says_so(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=2, repeat=2)) as service:
        for code in ("v1", "v2"):
            service.register(ClientRegistration(client_id="client", code_hash=code))
            await take(service, "a")
        texts = [e.text for e in service.monitor.overview().errors if e.kind == "code_replaced"]
        assert texts == ["1 groups of code 'v1' were dropped for code 'v2', 0 kept"]
