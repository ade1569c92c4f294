import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.sampling import seed_of, sglang_request, vllm_request, whole_piece
from swarm.server.ports import GenerateRequest, SamplingParams


def request(**changes):
    values = {
        "request_id": "r",
        "prompt_ids": [1, 2],
        "max_tokens": 8,
        "temperature": 0.7,
        "stop_token_ids": [3],
        "noise_key": "key",
        "affinity": "e",
    }
    return GenerateRequest(**(values | changes))


def test_both_samplers_are_told_the_same():
    asked = request(
        stop=["x"],
        params=SamplingParams(top_p=0.9, min_tokens=2, logit_bias={5: 1.5}, presence_penalty=0.1),
    )
    vllm, sglang = vllm_request(asked)["params"], sglang_request(asked)["params"]
    alike = {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "presence_penalty": "presence_penalty",
        "min_tokens": "min_new_tokens",
        "max_tokens": "max_new_tokens",
        "stop_token_ids": "stop_token_ids",
        "stop": "stop",
    }
    assert {name: vllm[name] for name in alike} == {k: sglang[v] for k, v in alike.items()}
    assert (vllm["logit_bias"], sglang["logit_bias"]) == ({5: 1.5}, {"5": 1.5})
    assert sglang["top_k"] == -1


@pytest.mark.parametrize("make", [vllm_request, sglang_request])
def test_what_the_embedded_engine_lets_pass_is_sent_as_a_sampler_takes_it(make):
    asked = request(
        stop_token_ids=[3, 64],
        params=SamplingParams(top_p=0.0, min_tokens=9, logit_bias={5: 1.5, 64: 2.0}),
    )
    sent = make(asked, vocabulary=64)["params"]
    assert 0 < sent["top_p"] < 1e-5
    assert sent.get("min_tokens", sent.get("min_new_tokens")) == 8
    assert sent["stop_token_ids"] == [3]
    assert [int(token) for token in sent["logit_bias"]] == [5]
    assert asked.params.logit_bias == {5: 1.5, 64: 2.0}


def test_a_seed_is_a_hash_of_the_noise_key():
    assert vllm_request(request())["params"]["seed"] == seed_of("key") != seed_of("other")
    assert 0 <= sglang_request(request())["params"]["sampling_seed"] < 2**31


@pytest.mark.parametrize(("lark", "top"), [("start: x", 0), ("", 2)])
def test_what_sglang_cannot_do_is_refused(lark, top):
    with pytest.raises(ConfigError, match="SGLang"):
        sglang_request(request(top_logprobs=top), lark=lark)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("length", "length"), ("abort", "abort"), (None, "abort")],
)
def test_a_whole_answer_is_one_last_piece(reason, finish):
    piece = whole_piece([4, 5], [-0.1, -0.2], reason, version=3)
    assert (piece["ids"], piece["versions"], piece["finish"]) == ([4, 5], [3, 3], finish)
