from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from swarm.protocol.config import MixStage


def test_shares_that_add_up_to_one_are_taken() -> None:
    assert MixStage(shares={"a": 0.3, "b": 0.7}).shares == {"a": 0.3, "b": 0.7}
    assert MixStage(shares={"a": 1.0}).from_step == 0


@pytest.mark.parametrize(
    "values",
    [
        (0.5, 0.4),
        (0.0, 1.0),
        (2.0, -1.0),
        (1.7e308, 1.7e308),
        (math.inf, 0.5),
        (math.nan, 0.5),
        (),
    ],
)
def test_other_shares_are_refused_however_large(values: tuple[float, ...]) -> None:
    shares = {str(i): value for i, value in enumerate(values)}
    with pytest.raises(ValidationError):
        MixStage(shares=shares)
