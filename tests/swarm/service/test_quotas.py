"""The sequence behind a mix: exact at every length, carried over steps, robust when steps cannot deliver."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.protocol.config import BatchConfig, MixStage
from swarm.protocol.states import CollectionPolicy
from swarm.server.service.quotas import carried, lots_of, owed_after, sequence, shares_at

pytestmark = pytest.mark.every_engine

THIRDS = {"math": 0.4, "code": 0.3, "terminal": 0.3}

weights = st.lists(st.integers(1, 1000), min_size=1, max_size=7).map(
    lambda whole: {f"set{i}": weight / sum(whole) for i, weight in enumerate(whole)}
)


def in_steps(shares, sizes, owed=None):
    """The sequence as steps of these sizes take it, and what is owed at the end."""
    owed, taken = owed or {}, []
    for size in sizes:
        part = sequence(shares, owed, size)
        taken += part
        owed = owed_after(shares, owed, Counter(part))
    return taken, owed


@given(shares=weights, length=st.integers(1, 300))
def test_every_set_is_within_one_of_its_share_at_every_length(shares, length):
    n = len(shares)
    bound = 1 - 1 / (2 * n - 2) if n > 1 else 0.0
    counts = Counter()
    for so_far, name in enumerate(sequence(shares, {}, length), 1):
        counts[name] += 1
        for other, share in shares.items():
            assert abs(counts[other] - share * so_far) <= bound + 1e-6


def test_ten_groups_of_four_three_three_tenths_are_four_three_and_three():
    assert Counter(sequence(THIRDS, {}, 10)) == {"math": 4, "code": 3, "terminal": 3}


@given(shares=weights, sizes=st.lists(st.integers(1, 20), min_size=1, max_size=20))
def test_steps_of_any_size_take_the_same_sequence(shares, sizes):
    taken, owed = in_steps(shares, sizes)
    assert taken == sequence(shares, {}, sum(sizes))
    for name, share in shares.items():
        assert owed[name] == pytest.approx(share * len(taken) - taken.count(name), abs=1e-6)


@given(shares=weights, count=st.integers(0, 50), more=st.integers(0, 50))
def test_a_longer_sequence_begins_with_the_shorter(shares, count, more):
    assert sequence(shares, {}, count + more)[:count] == sequence(shares, {}, count)


def test_what_a_step_could_not_deliver_is_asked_for_again_one_a_step_at_most():
    owed = owed_after(THIRDS, {}, {"math": 4, "code": 0, "terminal": 3})
    assert 0 < owed["code"] <= 1.3
    assert sum(owed.values()) == pytest.approx(0, abs=1e-6)
    for _ in range(20):  # it never delivers again: it must not take the steps over
        order = Counter(sequence(THIRDS, owed, 10))
        assert order["code"] <= 5
        owed = owed_after(THIRDS, owed, {**order, "code": 0})


@given(
    shares=weights,
    owed=st.dictionaries(st.sampled_from([f"set{i}" for i in range(7)]), st.floats(-2, 2)),
    size=st.integers(1, 60),
)
def test_any_debt_gives_a_full_step(shares, owed, size):
    order = sequence(shares, carried(shares, owed), size)
    assert len(order) == size
    assert set(order) <= set(shares)


def test_a_step_that_consumed_nothing_owes_what_was_owed():
    owed = {"math": 0.4, "code": -0.2, "terminal": -0.2}
    assert owed_after(THIRDS, owed, {}) == owed


def test_sets_that_leave_the_mix_are_forgotten_and_the_rest_is_balanced():
    left = carried({"a": 0.5, "b": 0.5}, {"a": 0.2, "gone": -0.6, "b": 0.4})
    assert left == {"a": pytest.approx(-0.1), "b": pytest.approx(0.1)}


def test_a_schedule_holds_from_its_step_on():
    mix = (
        MixStage(shares={"easy": 1.0}),
        MixStage(from_step=5, shares={"easy": 0.25, "hard": 0.75}),
    )
    assert shares_at(mix, 4) == {"easy": 1.0}
    assert shares_at(mix, 5) == shares_at(mix, 500) == {"easy": 0.25, "hard": 0.75}
    assert shares_at((), 3) == {}


def test_lots_without_a_mix_are_one_and_with_oversampling_leave_room():
    (lot,) = lots_of(BatchConfig(tasks=10, oversample=1.1, max_groups_factor=3), 0, {}).values()
    assert (lot.need, lot.limit, lot.tries) == (10, 11, 30)


def test_lots_of_a_mix_count_groups_and_under_c1_episodes():
    batch = BatchConfig(tasks=5, repeat=2, mix={"a": 0.5, "b": 0.5}, oversample=1.2)
    lots = lots_of(batch, 0, {})
    assert {name: (lot.need, lot.limit) for name, lot in lots.items()} == {
        "a": (3, 3),
        "b": (2, 3),
    }
    lots = lots_of(batch.model_copy(update={"policy": CollectionPolicy.C1}), 0, {})
    assert {name: (lot.need, lot.limit) for name, lot in lots.items()} == {
        "a": (5, 6),
        "b": (5, 6),
    }
