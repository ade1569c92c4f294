import numpy as np
import pytest

from swarm.server.engine_verl.batches import arrays_of, group_of
from swarm.server.ports import SamplingParams, Span, SpanSampling, TrainRow
from swarm.server.train.packing import pack


def one(**changes):
    values = {
        "key": "s1.g/2/0",
        "episode_id": "e",
        "ids": [5, 6, 7, 8, 9],
        "spans": [Span(2, 4, 1.0)],
        "logprobs": [-0.1, -0.2],
        "advantage": 0.5,
        "weight": 0.25,
    }
    return TrainRow(**(values | changes))


def test_a_token_stands_one_place_left_of_its_position_because_the_first_is_the_prompt():
    arrays = arrays_of([one()])
    assert arrays.ids_R_T.tolist() == [[5, 6, 7, 8, 9]]
    assert arrays.trained_R_S.tolist() == [[False, True, True, False]]
    np.testing.assert_allclose(arrays.old_R_S, [[0, -0.1, -0.2, 0]])
    np.testing.assert_allclose(arrays.advantage_R_S, [[0, 0.5, 0.5, 0]])
    np.testing.assert_allclose(arrays.weight_R_S, [[0, 0.25, 0.25, 0]])
    assert arrays.groups == ["s1.g"]


def test_values_a_token_go_before_those_of_the_row():
    arrays = arrays_of([one(advantages=[1.0, -1.0], weights=[0.0, 2.0])])
    np.testing.assert_allclose(arrays.advantage_R_S, [[0, 1, -1, 0]])
    np.testing.assert_allclose(arrays.weight_R_S, [[0, 0, 0.5, 0]])


def test_rows_are_in_order_of_their_keys_whatever_order_they_came_in(rows):
    keys = arrays_of(rows).keys
    assert keys == sorted(keys)
    assert arrays_of(rows[::-1]).keys == keys


def test_a_row_of_two_temperatures_becomes_two_rows_that_train_each_token_once(rows):
    arrays = arrays_of(rows)
    assert len(arrays.keys) > len(rows)
    assert arrays.tokens == sum(len(row.logprobs) for row in rows)
    assert set(arrays.temperature_R.tolist()) == {1.0, np.float32(0.7)}
    assert arrays.weight_R_S.sum() == pytest.approx(
        sum(w * row.weight for row in rows for w in row.weights), rel=1e-5
    )


def test_rows_that_only_pad_train_nothing_and_make_the_number_divisible():
    arrays = arrays_of([one()], multiple=4)
    assert arrays.keys == ["s1.g/2/0", "", "", ""]
    assert arrays.trained_R_S.sum(1).tolist() == [2, 0, 0, 0]


def test_the_arrays_hold_what_the_embedded_engine_packs(rows):
    """Token for token: id, sampled log-probability, advantage and weight of both engines are the same multiset."""
    packed, arrays = pack(rows), arrays_of(rows)
    at = arrays.trained_R_S
    ours = sorted(
        zip(
            arrays.ids_R_T[:, 1:][at].tolist(),
            arrays.old_R_S[at].tolist(),
            arrays.advantage_R_S[at].tolist(),
            arrays.weight_R_S[at].tolist(),
            np.broadcast_to(arrays.temperature_R[:, None], at.shape)[at].tolist(),
            strict=True,
        )
    )
    theirs = sorted(
        zip(
            packed.target_N.tolist(),
            packed.old_logprob_N.tolist(),
            packed.advantage_N.tolist(),
            packed.weight_N.tolist(),
            packed.temperature_N.tolist(),
            strict=True,
        )
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logprobs": [-0.1]}, "1 log-probabilities for 2"),
        ({"advantages": [1.0]}, "1 advantages for 2"),
        ({"weights": [1.0, 1.0, 1.0]}, "3 weights for 2"),
        ({"spans": [Span(0, 2, 1.0)]}, "span outside"),
        ({"spans": [Span(4, 6, 1.0)]}, "span outside"),
        ({"replays": [SpanSampling(SamplingParams(top_k=3))]}, "cannot rebuild"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_key(changes, words):
    with pytest.raises(ValueError, match=words) as refused:
        arrays_of([one(**changes)])
    assert "s1.g/2/0" in str(refused.value)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="no rows"):
        arrays_of([])


def test_a_group_id_may_hold_slashes():
    assert group_of("calculator/3+4#0/1/0") == "calculator/3+4#0"
