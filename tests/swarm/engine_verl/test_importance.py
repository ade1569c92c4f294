import numpy as np
import pytest

from swarm.server.engine_verl.batches import arrays_of
from swarm.server.engine_verl.importance import corrected, gap_of
from swarm.server.ports import Span, TrainRow


@pytest.fixture
def arrays():
    """Three tokens, of which the last two train; the sampler gave them probabilities 1/2 and 1/4."""
    row = TrainRow(
        "g/0/0", "e", [1, 2, 3], [Span(1, 3, 1.0)], [np.log(0.5), np.log(0.25)], 1.0, 0.5
    )
    return arrays_of([row])


def test_weights_are_multiplied_with_the_ratio_and_cut(arrays):
    start = np.log(np.array([[0.25, 0.75]], np.float32))
    out, cut = corrected(arrays, start, 2.0)
    assert cut == 1
    assert out.weight_R_S == pytest.approx(np.array([[0.25, 1.0]]))
    assert out.old_R_S == pytest.approx(start)
    assert gap_of(arrays, start) == pytest.approx(np.log(3), rel=1e-6)


def test_the_sampler_s_own_weights_change_nothing(arrays):
    out, cut = corrected(arrays, arrays.old_R_S, 2.0)
    assert cut == 0
    assert out.weight_R_S == pytest.approx(arrays.weight_R_S)
    assert gap_of(arrays, arrays.old_R_S) == 0


def test_tokens_that_do_not_train_are_left_alone():
    row = TrainRow("g/0/0", "e", [1, 2, 3], [Span(2, 3, 1.0)], [-1.0], 1.0, 1.0)
    arrays = arrays_of([row])
    out, cut = corrected(arrays, np.array([[5.0, -1.0]], np.float32), 1.5)
    assert (cut, out.old_R_S.tolist(), out.weight_R_S.tolist()) == (0, [[0.0, -1.0]], [[0.0, 1.0]])
