import numpy as np
import pytest

from swarm.server.engine_verl.estimators import among_others, estimated, sequences_of
from swarm.server.ports import Span, TrainRow


def row(key, episode, logprobs, reward, **more):
    span = Span(1, 1 + len(logprobs), 1.0)
    ids = list(range(1 + len(logprobs)))
    return TrainRow(key, episode, ids, [span], logprobs, 0.0, 1.0, reward=reward, **more)


ROWS = [
    row("s.g0/0000/0000", "a", [-1.0, -2.0], 1.0),
    row("s.g0/0000/0001", "a", [-3.0], 1.0),
    row("s.g0/0001/0000", "b", [-4.0], 0.5),
    row("s.g0/0001/0001", "b", [-5.0, -6.0], 0.25, agent="judge"),
]


def test_an_agents_rows_of_an_episode_are_one_sequence_with_the_reward_at_its_end():
    made = sequences_of(ROWS)
    assert made.rows == [[0, 1], [2], [3]]
    np.testing.assert_array_equal(made.reward_E_L, [[0, 0, 1.0], [0.5, 0, 0], [0, 0.25, 0]])
    np.testing.assert_array_equal(made.mask_E_L, [[1, 1, 1], [1, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(made.old_E_L, [[-1, -2, -3], [-4, 0, 0], [-5, -6, 0]])


def test_agents_are_compared_with_themselves():
    assert sequences_of(ROWS).index_E.tolist() == ["s.g0/", "s.g0/", "s.g0/judge"]


def test_each_token_gets_its_own_advantage_and_the_rows_given_stay_as_they_are():
    count = np.arange(9, dtype=np.float32).reshape(3, 3)
    made = estimated(ROWS, lambda _: count)
    assert [one.advantages for one in made] == [[0.0, 1.0], [2.0], [3.0], [6.0, 7.0]]
    assert not any(one.advantages for one in ROWS)


def test_advantages_that_a_client_chose_stay():
    chosen = row("s.g0/0000/0000", "a", [-1.0, -2.0], 1.0, advantages=[5.0, 6.0])
    made = estimated([chosen, *ROWS[1:]], lambda made: made.mask_E_L)
    assert made[0].advantages == [5.0, 6.0]
    assert made[1].advantages == [1.0]


def test_who_has_nobody_to_be_compared_with_is_left_out_of_it():
    asked = []

    def estimate(made):
        asked.append((made.rows, made.index_E.tolist(), made.reward_E_L.max(1).tolist()))
        return made.mask_E_L

    made = estimated(ROWS, among_others(estimate))
    assert [one.advantages for one in made] == [[1.0, 1.0], [1.0], [1.0], [0.0, 0.0]]
    assert asked == [([[0, 1], [2]], ["s.g0/", "s.g0/"], [1.0, 0.5])]
    assert estimated(ROWS[3:], among_others(estimate))[0].advantages == [0.0, 0.0]


@pytest.mark.parametrize("rows", [[], ROWS[:1]])
def test_few_rows_are_no_trouble(rows):
    assert len(estimated(rows, lambda made: made.mask_E_L)) == len(rows)
