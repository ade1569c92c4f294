"""What of a caller's sampling can train on an engine whose trainer rebuilds temperature only."""

import pytest

from swarm.protocol.config import SamplingConfig
from swarm.protocol.states import EpisodeKind
from swarm.server.service.calls import ChatCall, Sampling
from swarm.server.service.sampling import apply_sampling

PLAIN = {"temperature": 0.7}


def applied(sampling, kind=EpisodeKind.TRAIN, **settings):
    call = ChatCall(messages=[], temperature=0.7, sampling=sampling)
    return apply_sampling(
        call, SamplingConfig(**settings), kind, room=100, grammar=None, replays=False
    )


def test_plain_sampling_at_any_temperature_trains():
    assert applied(Sampling()).replayable


@pytest.mark.parametrize(
    "sampling",
    [Sampling(top_p=0.9), Sampling(presence_penalty=0.5), Sampling(logit_bias={3: 1.0})],
    ids=["top_p", "penalty", "bias"],
)
def test_what_was_sampled_in_another_way_is_kept_as_asked_and_masked(sampling):
    found = applied(sampling)
    assert not found.replayable
    assert found.shown["trained"] is False
    assert not found.params.truncates or found.params.top_p == 0.9


def test_truncation_that_is_ignored_leaves_a_call_that_trains():
    found = applied(Sampling(top_p=0.9), train={"truncation": "ignore"})
    assert found.replayable
    assert found.params.top_p == 1.0
