import pytest

from swarm.server.ports import Span, TrainRow
from swarm.server.train.packing import group_rows, pack, trained_tokens


def row(key="g/0/0", length=6, spans=(), logprobs=()):
    return TrainRow(key, "e", list(range(1, length + 1)), list(spans), list(logprobs), 0.5, 0.1)


def test_a_pack_points_at_the_position_before_each_trained_token():
    packed = pack(
        [
            row("a", 6, [Span(2, 4, 1.0), Span(5, 6, 0.5)], [-1.0, -2.0, -3.0]),
            row("b", 4, [Span(1, 2, 1.0)], [-4.0]),
        ]
    )
    assert packed.ids_B_T.tolist() == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 0, 0]]
    assert packed.row_N.tolist() == [0, 0, 0, 1]
    assert packed.source_N.tolist() == [1, 2, 4, 0]
    assert packed.target_N.tolist() == [3, 4, 6, 2]
    assert packed.old_logprob_N.tolist() == [-1.0, -2.0, -3.0, -4.0]
    assert packed.temperature_N.tolist() == [1.0, 1.0, 0.5, 1.0]


def test_groups_hold_every_row_once_within_the_padded_budget():
    rows = [row(str(i), n) for i, n in enumerate((9, 3, 30, 4, 4, 12, 3))]
    groups = group_rows(rows, 24)
    assert sorted(r.key for g in groups for r in g) == sorted(r.key for r in rows)
    assert all(max(len(r.ids) for r in g) * len(g) <= 24 for g in groups if len(g) > 1)
    assert [[len(r.ids) for r in g] for g in groups] == [[3, 3, 4, 4], [9, 12], [30]]


def test_grouping_does_not_depend_on_the_order_that_rows_come_in():
    rows = [row(str(i), 5 + i % 3) for i in range(9)]
    keys = [[r.key for r in g] for g in group_rows(rows, 20)]
    assert keys == [[r.key for r in g] for g in group_rows(rows[::-1], 20)]


@pytest.mark.parametrize(
    ("spans", "logprobs", "named"),
    [
        ([Span(2, 4, 1.0)], [-1.0], "1 log-probabilities for 2"),
        ([Span(0, 1, 1.0)], [-1.0], "outside"),
        ([Span(5, 7, 1.0)], [-1.0, -1.0], "outside"),
    ],
    ids=["count", "first-token", "past-the-end"],
)
def test_a_row_whose_spans_do_not_fit_is_refused(spans, logprobs, named):
    with pytest.raises(ValueError, match=named):
        pack([row(spans=spans, logprobs=logprobs)])


def test_trained_tokens_counts_the_spans():
    assert trained_tokens(row(spans=[Span(1, 3, 1.0), Span(4, 6, 1.0)])) == 4


def test_values_a_token_replace_the_rows_advantage_and_multiply_its_weight():
    told = row("a", 5, [Span(1, 3, 1.0)], [-1.0, -2.0])
    told.advantages, told.weights = [2.0, -3.0], [1.0, 0.0]
    plain = row("b", 5, [Span(1, 3, 1.0)], [-1.0, -2.0])
    packed = pack([told, plain])
    assert packed.advantage_N.tolist() == [2.0, -3.0, 0.5, 0.5]
    assert packed.weight_N.tolist() == pytest.approx([0.1, 0.0, 0.1, 0.1])
    assert (packed.keys, packed.counts) == (["a", "b"], [2, 2])


@pytest.mark.parametrize("name", ["advantages", "weights"])
def test_values_for_other_than_every_trained_token_are_refused(name):
    bad = row(spans=[Span(1, 3, 1.0)], logprobs=[-1.0, -2.0])
    setattr(bad, name, [1.0])
    with pytest.raises(ValueError, match=f"1 {name} for 2"):
        pack([bad])
