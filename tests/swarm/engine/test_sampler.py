import pytest
import torch

from swarm.server.engine.noise import Noise
from swarm.server.engine.sampler import Sampler
from swarm.server.engine.weights import load_model

QUESTIONS = [f"{a}+{b}" for a in range(10, 22) for b in (7, 48, 923)]


@pytest.fixture
def sampler(tiny_model, tokenizer):
    return Sampler(tiny_model, lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def run(sampler, requests):
    """Sample all requests together; returns the chunks of each."""
    chunks = {r.request_id: [] for r in requests}
    for request in requests:
        sampler.submit(request)
    while sampler.busy:
        for chunk in sampler.tick():
            chunks[chunk.request_id].append(chunk)
    return chunks


def final(sampler, request):
    (chunk,) = run(sampler, [request])[request.request_id]
    return chunk


def test_the_same_noise_key_gives_the_same_tokens_whatever_the_batch(sampler, ask):
    together = run(sampler, [ask(q) for q in QUESTIONS])
    sampler.weights_changed()  # forget the cache, so that nothing is reused
    for question in QUESTIONS[::7]:
        alone = final(sampler, ask(question))
        assert alone.token_ids == together[question][0].token_ids
        assert alone.logprobs == pytest.approx(together[question][0].logprobs, abs=1e-5)


def test_requests_beyond_the_slots_wait_and_sample_the_same(tiny_model, tokenizer, ask):
    narrow = Sampler(tiny_model, tokenizer.decode, slots=3)
    wide = Sampler(tiny_model, tokenizer.decode)
    requests = [ask(q) for q in QUESTIONS[:8]]
    tokens = [{q: c[0].token_ids for q, c in run(s, requests).items()} for s in (narrow, wide)]
    assert tokens[0] == tokens[1]


def test_another_noise_key_gives_other_tokens(sampler, ask):
    answers = {tuple(final(sampler, ask("11+48", noise_key=str(k))).token_ids) for k in range(12)}
    assert len(answers) > 1


def test_logprobs_are_those_of_the_whole_sequence_at_the_applied_temperature(
    sampler, tiny_model, ask
):
    for temperature in (1.0, 0.5, 1.7):
        request = ask("37+48", temperature=temperature)
        chunk = final(sampler, request)
        ids = torch.tensor([request.prompt_ids + chunk.token_ids])
        with torch.no_grad():
            logprobs = (tiny_model(ids)[0] / temperature).log_softmax(-1)
        start = len(request.prompt_ids)
        expected = [float(logprobs[start - 1 + i, t]) for i, t in enumerate(chunk.token_ids)]
        assert chunk.logprobs == pytest.approx(expected, abs=1e-4)


def test_reusing_a_cached_prefix_does_not_change_the_tokens(sampler, tiny_model, tokenizer, ask):
    first = ask("37+48")
    answer = final(sampler, first)
    turn = tokenizer.encode("\n<|im_start|>tool\n85<|im_end|>\n<|im_start|>assistant\n").ids
    second = ask(
        "37+48", prompt_ids=first.prompt_ids + answer.token_ids + turn, noise_key="second turn"
    )
    warm = final(sampler, second)
    cold = final(Sampler(tiny_model, tokenizer.decode), second)
    assert warm.token_ids == cold.token_ids
    assert warm.logprobs == pytest.approx(cold.logprobs, abs=1e-5)


def test_new_weights_void_the_cache(sampler, tiny_model, tokenizer, ask):
    final(sampler, ask("37+48"))
    with torch.no_grad():
        for parameter in tiny_model.parameters():
            parameter.mul_(1.05)
    sampler.weights_changed()
    fresh = Sampler(tiny_model, tokenizer.decode)
    assert final(sampler, ask("37+48")) == final(fresh, ask("37+48"))


def test_a_long_prompt_is_prefilled_in_pieces_and_samples_the_same(small_folder):
    model = load_model(small_folder, max_len=None)
    from swarm.server.ports import GenerateRequest

    sampler = Sampler(model, str)
    prompt = [(7 * i) % 50 for i in range(60)]
    chunk = final(sampler, GenerateRequest("long", prompt, 4, 0.0, [], "n", "a"))
    ids = list(prompt)
    for _ in range(4):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert chunk.token_ids == ids[60:]
    assert chunk.finish == "length"


def test_temperature_zero_is_greedy_with_the_logprobs_of_temperature_one(sampler, tiny_model, ask):
    request = ask("12+34", temperature=0.0)
    chunk = final(sampler, request)
    with torch.no_grad():
        logprobs = tiny_model(torch.tensor([request.prompt_ids]))[0, -1].log_softmax(-1)
    assert chunk.token_ids[0] == int(logprobs.argmax())
    assert chunk.logprobs[0] == pytest.approx(float(logprobs.max()), abs=1e-5)


def test_a_stop_token_ends_the_answer_and_is_part_of_it(sampler, ask):
    chunk = final(sampler, ask("12+34", temperature=0.0))
    assert chunk.finish == "stop"
    assert chunk.token_ids[-1] == 2
    assert 2 not in chunk.token_ids[:-1]


def test_a_stop_string_ends_the_answer_with_the_token_that_completes_it(sampler, tokenizer, ask):
    whole = final(sampler, ask("12+34", temperature=0.0))
    text = tokenizer.decode(whole.token_ids, skip_special_tokens=False)
    assert "+3" in text

    chunk = final(sampler, ask("12+34", temperature=0.0, stop=["never", "+3"]))
    assert chunk.finish == "stop"
    assert tokenizer.decode(chunk.token_ids, skip_special_tokens=False).endswith("+3")
    assert chunk.token_ids == whole.token_ids[: len(chunk.token_ids)]


def test_max_tokens_and_the_context_both_end_an_answer_by_length(sampler, small_folder, ask):
    assert len(final(sampler, ask("12+34", max_tokens=2)).token_ids) == 2
    from swarm.server.ports import GenerateRequest

    short = Sampler(load_model(small_folder, max_len=16), str)
    chunk = final(short, GenerateRequest("r", list(range(10)), 100, 1.0, [], "n", "a"))
    assert (len(chunk.token_ids), chunk.finish) == (6, "length")
    full = final(short, GenerateRequest("r", list(range(16)), 100, 1.0, [], "n", "a"))
    assert (full.token_ids, full.finish) == ([], "length")


def test_a_stream_is_the_same_answer_token_by_token(sampler, ask):
    whole = final(sampler, ask("12+34"))
    pieces = run(sampler, [ask("12+34", stream=True)])["12+34"]
    assert [t for p in pieces for t in p.token_ids] == whole.token_ids
    assert all(len(p.token_ids) == 1 for p in pieces)
    assert [p.finish for p in pieces] == [None] * (len(pieces) - 1) + ["stop"]


def test_top_logprobs_are_the_largest_in_order_for_each_token(sampler, ask):
    chunk = final(sampler, ask("12+34", temperature=0.0, top_logprobs=3))
    assert len(chunk.top) == len(chunk.token_ids)
    for token, logprob, top in zip(chunk.token_ids, chunk.logprobs, chunk.top, strict=True):
        assert len(top) == 3
        assert top[0] == (token, logprob)
        assert [v for _, v in top] == sorted((v for _, v in top), reverse=True)


def test_abort_returns_what_was_sampled_and_frees_the_slot(tiny_model, tokenizer, ask):
    sampler = Sampler(tiny_model, tokenizer.decode, slots=1)
    sampler.submit(ask("12+34", stop_token_ids=[]))
    sampler.submit(ask("56+78"))
    for _ in range(3):
        sampler.tick()
    (chunk,) = sampler.abort("12+34")
    assert (chunk.finish, len(chunk.token_ids)) == ("abort", 3)
    assert sampler.abort("12+34") == []
    assert sampler.abort("56+78")[0].finish == "abort"
    assert not sampler.busy
    assert final(sampler, ask("90+12")).finish == "stop"


def test_noise_depends_on_the_key_alone_and_is_uniform():
    one, same, other = Noise("a"), Noise("a"), Noise("b")
    drawn = [one.next() for _ in range(2000)]
    assert drawn == [same.next() for _ in range(2000)]
    assert drawn[:5] != [other.next() for _ in range(5)]
    assert all(0.0 <= u < 1.0 for u in drawn)
    assert abs(sum(drawn) / 2000 - 0.5) < 0.03


def test_sampled_frequencies_follow_the_probabilities(sampler, tiny_model, ask):
    requests = [ask("37+48", request_id=str(i), noise_key=str(i), max_tokens=1) for i in range(600)]
    first = [c[0].token_ids[0] for c in run(sampler, requests).values()]
    with torch.no_grad():
        probabilities = tiny_model(torch.tensor([requests[0].prompt_ids]))[0, -1].softmax(-1)
    most = int(probabilities.argmax())
    expected = float(probabilities[most])
    spread = 4 * (expected * (1 - expected) / 600) ** 0.5
    assert first.count(most) / 600 == pytest.approx(expected, abs=spread)
