"""The pool's counts, and that a step always ends: any policy, rule and mix, whatever is lost on the way."""

import itertools
import random
from collections import Counter
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.protocol.config import BatchConfig
from swarm.protocol.states import CollectionPolicy, EpisodeKind, GroupRule
from swarm.server.service import policies
from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Pool
from swarm.server.service.lots import Lot
from swarm.server.service.quotas import sequence
from swarm.server.tracking.episode_tree import EpisodeTree
from swarm.server.tracking.tokenizer import ChatTokenizer

pytestmark = pytest.mark.every_engine

SETS = ("a", "b", "c")
_numbers = itertools.count()


class Table:
    """Plays episodes of a pool without a server: seats are taken, finished, lost or freed by chance."""

    def __init__(self, batch: BatchConfig, seed: int, *, dull: float = 0.3, careless: float = 0.2):
        self.pool = Pool(0, batch)
        self.pool.consent = lambda: True
        self.rng = random.Random(seed)
        self.dull, self.careless = dull, careless
        self.open: list[Episode] = []
        self.tasks = itertools.count()

    def take(self) -> bool:
        """Take a seat of any task set that has one; False when none has."""
        for task_set in self.rng.sample(SETS, len(SETS)):
            waiting = [g for g in self.pool.alive() if g.task_set == task_set and g.missing]
            free = self.rng.choice(waiting) if waiting else None
            if policies.refusal(self.pool, task_set, free):
                continue
            group = free or self.pool.open_group(task_set, f"t{next(self.tasks)}")
            self._sit(group)
            return True
        return False

    def _sit(self, group) -> None:
        episode = Episode(
            episode_id=f"ep{next(_numbers)}",
            kind=EpisodeKind.TRAIN,
            client_id="c",
            task_set=group.task_set,
            task_id=group.task_id,
            group_id=group.group_id,
            repeat_index=group.free_seat(),
            step=0,
            policy_version=0,
            granted_at=0.0,
            started=0.0,
            idle_deadline_s=1.0,
            total_deadline_s=1.0,
            tree=EpisodeTree(cast(ChatTokenizer, None)),
        )
        self.pool.seat(group, episode)
        self.open.append(episode)

    def end_one(self) -> None:
        """End a random open episode: it is lost, freed, or finished (in a dull group with the same reward as its mates)."""
        episode = self.open.pop(self.rng.randrange(len(self.open)))
        chance = self.rng.random()
        if chance < self.careless / 2:
            gone = self.pool.lose(episode).outcast
            self.open = [e for e in self.open if e not in gone]
        elif chance < self.careless:
            self.pool.release(episode)
        else:
            dull = random.Random(episode.group_id).random() < self.dull
            episode.reward = 1.0 if dull else float(episode.repeat_index)
            self.pool.finish(episode)

    def play(self, limit: int = 20_000) -> None:
        """Play until the step is ready; every count is checked on the way."""
        for _ in range(limit):
            if policies.is_ready(self.pool):
                return
            if self.open and self.rng.random() < 0.5:
                self.end_one()
            elif not self.take():
                assert self.open, f"stuck: {self.pool.lots}"
                self.end_one()
            assert self.pool.lots == recount(self.pool)
        raise AssertionError(f"the step never ended: {self.pool.lots}")


def recount(pool: Pool) -> dict[str, Lot]:
    """The lots counted anew from the groups."""
    found = {n: Lot(lot.need, lot.limit, lot.tries) for n, lot in pool.lots.items()}
    for group in pool.groups.values():
        lot = found[group.task_set if pool.shares else ""]
        lot.groups += 1
        if group.dropped:
            lot.dropped += 1
            continue
        lot.seats += group.size - group.forgone
        lot.open += len(group.open)
        lot.finished += len(group.finished)
        if group.complete:
            lot.completed += 1
            lot.trainable += group.unequal
    return found


batches = st.builds(
    BatchConfig,
    tasks=st.integers(1, 6),
    repeat=st.integers(1, 4),
    policy=st.sampled_from(CollectionPolicy),
    group_rule=st.sampled_from(GroupRule),
    oversample=st.sampled_from([1.0, 1.3, 2.0]),
    max_groups_factor=st.integers(1, 4),
    mix=st.sampled_from(
        [
            {},
            {"a": 1.0},
            {"a": 0.4, "b": 0.3, "c": 0.3},
            {"a": 0.05, "b": 0.95},
            {"a": 0.5, "c": 0.5},
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    batch=batches,
    seed=st.integers(0, 1000),
    dull=st.sampled_from([0.0, 0.3, 1.0]),
    careless=st.sampled_from([0.0, 0.3, 0.7]),
)
def test_a_step_ends_and_its_counts_are_those_of_its_groups(batch, seed, dull, careless):
    table = Table(batch, seed, dull=dull, careless=careless)
    table.play()
    choice = policies.choose(table.pool)
    taken = {id(e) for e in [*choice.episodes, *choice.equal, *choice.leftovers]}
    finished = {id(e) for g in table.pool.alive() for e in g.finished.values()}
    assert taken == finished  # each finished episode has exactly one fate
    assert len(taken) == len(choice.episodes) + len(choice.equal) + len(choice.leftovers)


@settings(max_examples=150, deadline=None)
@given(batch=batches, seed=st.integers(0, 1000))
def test_without_losses_a_step_takes_exactly_the_shares_of_its_mix(batch, seed):
    table = Table(batch, seed, dull=0.0, careless=0.0)
    table.play()
    pool, choice = table.pool, policies.choose(table.pool)
    if batch.policy in policies.REPLACES_EQUAL and batch.repeat == 1:
        return  # groups of one never differ, and are replaced until the tries are used up
    sets = Counter(pool.groups[group_id].task_set for group_id, _ in choice.groups)
    units = len(choice.groups)
    if batch.policy is CollectionPolicy.C1:
        sets, units = Counter(e.task_set for e in choice.episodes), len(choice.episodes)
    if batch.policy not in policies.BY_AGREEMENT:
        assert units == batch.tasks * (batch.repeat if batch.policy is CollectionPolicy.C1 else 1)
    if pool.shares:
        assert sets == Counter(sequence(pool.shares, {}, units))


@settings(max_examples=100, deadline=None)
@given(
    batch=batches,
    seed=st.integers(0, 1000),
    size=st.integers(1, 4),
    rule=st.sampled_from(GroupRule),
)
def test_a_pool_that_is_taken_over_by_another_configuration_counts_the_same(
    batch, seed, size, rule
):
    table = Table(batch, seed)
    for _ in range(20):
        if not table.take():
            break
        table.end_one()
    for episode in table.open:
        table.pool.release(episode)
    fresh = Pool(0, batch.model_copy(update={"repeat": size, "group_rule": rule}))
    fresh.take_over(table.pool)
    assert fresh.lots == recount(fresh)


@pytest.mark.parametrize("policy", ["C4", "C5"])
def test_nobody_s_consent_takes_no_step(policy):
    table = Table(BatchConfig(tasks=2, repeat=2, policy=policy), 1, dull=0.0, careless=0.0)
    table.play()
    assert policies.is_ready(table.pool)
    table.pool.consent = lambda: False
    assert not policies.is_ready(table.pool)


def test_an_agreement_takes_what_is_complete_in_the_exact_shares():
    batch = BatchConfig(tasks=8, repeat=1, policy="C5", group_rule="wait", mix={"a": 0.5, "b": 0.5})
    table = Table(batch, 0, careless=0.0)
    for task_set in "aaab":
        group = table.pool.open_group(task_set, f"t{next(table.tasks)}")
        table._sit(group)
        table.end_one()
    choice = policies.choose(table.pool)
    sets = [table.pool.groups[group_id].task_set for group_id, _ in choice.groups]
    assert sets == ["a", "a", "b"]  # a b a, and the next of the sequence, b, is still to come
    assert len(choice.leftovers) == 1


def test_under_partial_an_agreement_takes_groups_of_two_members_too():
    batch = BatchConfig(tasks=4, repeat=3, policy="C5", group_rule="partial")
    table = Table(batch, 0, dull=0.0, careless=0.0)
    for members in (3, 2, 1):
        group = table.pool.open_group("a", f"t{next(table.tasks)}")
        for _ in range(members):
            table._sit(group)
    while table.open:
        table.end_one()
    choice = policies.choose(table.pool)
    assert sorted(len(members) for _, members in choice.groups) == [2, 3]
    assert len(choice.leftovers) == 1


def test_a_task_set_that_cannot_deliver_any_more_is_passed_over_by_an_agreement():
    batch = BatchConfig(
        tasks=2,
        repeat=2,
        policy="C5",
        group_rule="resample",
        max_groups_factor=1,
        mix={"a": 0.5, "b": 0.5},
    )
    table = Table(batch, 0, dull=0.0, careless=0.0)
    lost, kept = (table.pool.open_group(name, name) for name in "ab")
    table._sit(lost)
    table.pool.lose(table.open.pop())
    assert policies.choose(table.pool).groups == []
    for _ in range(2):
        table._sit(kept)
        table.end_one()
    assert [group_id for group_id, _ in policies.choose(table.pool).groups] == [kept.group_id]
