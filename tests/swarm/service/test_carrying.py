"""What goes on in the next step's pool, for any pool."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.protocol.config import BatchConfig
from swarm.protocol.records import CallRecord
from swarm.protocol.states import EpisodeKind, EpisodeState
from swarm.server.ports import Span, TrainBatch, TrainRow
from swarm.server.service.carrying import carry, rests, torn
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Pool
from swarm.server.service.staleness import is_stale, oldest_version, staleness_fields
from swarm.server.tracking.episode_tree import EpisodeTree

pytestmark = pytest.mark.every_engine

BATCH = BatchConfig(tasks=3, repeat=3, oversample=2.0)


def an_episode(group, index, reward=None):
    """An episode on a seat; finished when it has a reward."""
    return Episode(
        episode_id=f"{group.group_id}.{index}",
        kind=EpisodeKind.TRAIN,
        client_id="c",
        task_set=group.task_set,
        task_id=group.task_id,
        group_id=group.group_id,
        repeat_index=index,
        step=0,
        policy_version=0,
        granted_at=0.0,
        started=0.0,
        idle_deadline_s=60.0,
        total_deadline_s=60.0,
        tree=EpisodeTree(None),
        state=EpisodeState.OPEN,
        reward=reward,
    )


def a_pool(seats):
    """A pool of groups whose seats are ``open``, ``done`` or ``empty``; finished in order of seats."""
    pool, finished = Pool(0, BATCH), []
    for number, states in enumerate(seats):
        group = pool.open_group("set", f"t{number}")
        for index, state in enumerate(states):
            if state != "empty":
                episode = an_episode(group, index, reward=float(index))
                pool.seat(group, episode)
                if state == "done":
                    finished.append(episode)
    for episode in sorted(finished, key=lambda e: (e.repeat_index, e.group_id)):
        episode.end(EpisodeState.FINISHED, "", 0.0)
        pool.finish(episode)
    return pool


SEATS = st.lists(
    st.lists(st.sampled_from(["open", "done", "empty"]), min_size=3, max_size=3), max_size=5
)


def members(pool):
    return [e for g in pool.alive() for e in [*g.open.values(), *g.finished.values()]]


@given(SEATS, st.data())
def test_whoever_was_neither_consumed_nor_dropped_is_in_the_next_pool_once(seats, data):
    old = a_pool(seats)
    done = [e for e in members(old) if not e.is_open]
    consumed = set(data.draw(st.lists(st.sampled_from(done), unique=True)) if done else [])
    rest = [e for e in done if e not in consumed]
    dropped = set(data.draw(st.lists(st.sampled_from(rest), unique=True)) if rest else [])
    new = Pool(1, BATCH)
    carry(old, new, consumed=consumed, dropped=dropped)
    assert Counter(map(id, members(new))) == Counter(
        id(e) for e in members(old) if e not in consumed | dropped
    )
    assert new.finish_order == [e for e in old.finish_order if e not in consumed | dropped]
    for group in new.alive():
        before = old.groups[group.group_id]
        gone = sum(e in consumed for e in before.finished.values())
        assert group.missing == group.size - gone - len(group.open) - len(group.finished) >= 0
        assert [*group.open, *group.finished]
    lot = new.lot("set")
    assert lot.open == sum(len(g.open) for g in new.alive())
    assert lot.finished == sum(len(g.finished) for g in new.alive())
    assert lot.completed == len(new.completed) == sum(g.complete for g in new.alive())
    assert sum(w.missing for w in new.wanted()) == lot.missing


@given(SEATS, st.data())
def test_a_withdrawn_member_leaves_a_pool_in_which_it_never_was(seats, data):
    pool = a_pool(seats)
    done = [e for e in members(pool) if not e.is_open]
    if not done:
        return
    episode = data.draw(st.sampled_from(done))
    pool.withdraw(episode)
    where = next(i for i, g in enumerate(pool.groups.values()) if g.group_id == episode.group_id)
    states = [list(group) for group in seats]
    states[where][episode.repeat_index] = "empty"
    fresh = a_pool(states)
    assert [e.episode_id for e in pool.finish_order] == [e.episode_id for e in fresh.finish_order]
    assert {g.group_id for g in pool.completed} == {g.group_id for g in fresh.completed}
    assert pool.wanted() == fresh.wanted()
    assert pool.trainable == fresh.trainable
    assert pool.lot("set") == fresh.lot("set")
    again = pool.unfilled("set", episode.task_id)
    assert again.free_seat() <= episode.repeat_index


def test_a_member_left_alone_by_what_was_consumed_is_torn_and_two_are_not():
    pool = a_pool([["done", "done", "open"], ["done", "open", "open"], ["done", "empty", "empty"]])
    first = [e for e in members(pool) if e.group_id == "s0.g0" and not e.is_open]
    second = [e for e in members(pool) if e.group_id == "s0.g1" and not e.is_open]
    consumed = {*first, *second}
    assert [e.episode_id for e in torn(pool, consumed)] == ["s0.g0.2"]
    assert {g.group_id for g, _ in rests(pool, consumed)} == {"s0.g0", "s0.g1", "s0.g2"}


def test_a_member_that_was_only_dropped_leaves_its_group_whole():
    pool = a_pool([["done", "done", "empty"]])
    (first, _) = members(pool)
    assert torn(pool, set(), {first}) == []


def a_call(version, sampled=2, token_versions=()):
    return CallRecord(
        index=0,
        policy_version=version,
        messages=[],
        reply={},
        finish_reason="stop",
        prompt_ids=[1],
        sampled_ids=[5] * sampled,
        logprobs=[-1.0] * sampled,
        temperature=1.0,
        max_tokens=9,
        token_versions=list(token_versions),
    )


@pytest.mark.parametrize(
    ("calls", "oldest"),
    [
        ([], None),
        ([a_call(3, sampled=0)], None),
        ([a_call(3), a_call(5)], 3),
        ([a_call(4, token_versions=[2, 4])], 2),
    ],
    ids=["nothing", "no-token", "two-calls", "mixed-call"],
)
def test_the_oldest_token_counts(calls, oldest):
    assert oldest_version(calls) == oldest


def test_the_bound_is_the_largest_distance_that_still_trains():
    calls = [a_call(4)]
    assert [is_stale(calls, version, 1) for version in (4, 5, 6)] == [False, False, True]
    assert not is_stale([], 100, 0)


def test_staleness_is_counted_over_trained_tokens_from_where_the_update_starts():
    row = TrainRow("k", "e", [1, 2, 3, 4], [Span(1, 4, 1.0)], [-1.0] * 3, 1.0, 1.0)
    row.versions = [5, 6, 6]
    batch = TrainBatch(step=9, policy_version=8, rows=[row], overlapped=True)
    fields = staleness_fields(batch, moved=True)
    assert fields == {"staleness_mean": pytest.approx(4 / 3), "staleness_max": 2}
    assert staleness_fields(batch, moved=False) == {}
    row.versions = []
    assert staleness_fields(batch, moved=True) == {"staleness_mean": 0.0, "staleness_max": 0}
