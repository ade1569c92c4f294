import msgspec
import pytest

from swarm.server.engine_verl.resend import NotRepeated, news_of, rest_of
from swarm.server.ports import GenerateRequest, SamplingParams

REQUEST = GenerateRequest("r", [1, 2], 10, 1.0, [], "key", "e")
PIECE = {
    "ids": [5, 6, 7],
    "logprobs": [-0.5, -0.6, -0.7],
    "top": [],
    "versions": [0, 0, 0],
    "finish": "stop",
    "stop_reason": None,
}


def test_a_request_of_which_nothing_was_told_is_sent_as_it_was():
    assert rest_of(REQUEST, []) == (REQUEST, 0)


def test_a_plain_request_goes_on_after_its_last_told_token():
    rest, known = rest_of(REQUEST, [5, 6])
    assert (rest.prompt_ids, rest.max_tokens, known) == ([1, 2, 5, 6], 8, 0)
    assert rest.noise_key != REQUEST.noise_key


@pytest.mark.parametrize(
    "changes",
    [
        {"stop": ["."]},
        {"params": SamplingParams(grammar='{"kind": "regex"}')},
        {"params": SamplingParams(presence_penalty=0.5)},
        {"params": SamplingParams(min_tokens=4)},
    ],
)
def test_a_request_whose_past_matters_is_sampled_from_its_beginning(changes):
    request = msgspec.structs.replace(REQUEST, **changes)
    assert rest_of(request, [5, 6]) == (request, 2)


def test_only_what_is_new_of_a_repeated_piece_comes_out():
    news = news_of(PIECE, [4, 5, 6], at=1, known=3)
    assert (news["ids"], news["logprobs"], news["versions"]) == ([7], [-0.7], [0])
    assert news["finish"] == "stop"
    assert news_of(PIECE, [5, 6], at=3, known=2) == PIECE


def test_another_token_than_the_told_one_is_noticed():
    with pytest.raises(NotRepeated):
        news_of(PIECE, [5, 9], at=0, known=2)
