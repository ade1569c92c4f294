"""Asynchronous mode in the engine: an update in pieces between ticks, and a swap under running requests."""

import pytest
import torch

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import StateError
from swarm.server.engine.decoder import Decoder, Part
from swarm.server.engine.torch_engine import TorchEngine
from swarm.server.ports import Span, TrainBatch, TrainRow

LONG = {"stop_token_ids": [], "max_tokens": 60}


@pytest.fixture
def build(tiny_config):
    def engine(*, enabled=True, **changes) -> TorchEngine:
        body = {"asynchronous": {"enabled": enabled}, "optimizer": {"lr": 5e-2}} | changes
        return TorchEngine(TrainConfig.model_validate(body))

    return engine


def run(engine):
    """Chunks of everything that runs, by request, to the end."""
    chunks = {}
    while engine.busy:
        for chunk in engine.tick():
            chunks.setdefault(chunk.request_id, []).append(chunk)
    return chunks


@pytest.fixture
def batch(build, ask):
    """Rows sampled by the shipped model."""
    engine = build(enabled=False)
    requests = [ask(f"{i}+48") for i in range(11, 17)]
    for request in requests:
        engine.submit(request)
    answers = run(engine)
    rows = []
    for i, request in enumerate(requests):
        (whole,) = answers[request.request_id]
        start = len(request.prompt_ids)
        rows.append(
            TrainRow(
                key=f"g/{i}/0",
                episode_id=f"e{i}",
                ids=request.prompt_ids + whole.token_ids,
                spans=[Span(start, start + len(whole.token_ids), 1.0)],
                logprobs=whole.logprobs,
                advantage=(-1.0) ** i,
                weight=0.05,
            )
        )
    return TrainBatch(1, 1, rows, overlapped=True)


def logprobs_under(engine, ids, start):
    """Of ids[start:] when the engine's present weights read the whole sequence anew."""
    with torch.no_grad():
        table = engine._model(torch.tensor([ids]))[0].log_softmax(-1)
    return [float(table[at - 1, ids[at]]) for at in range(start, len(ids))]


def test_a_stream_goes_on_over_the_swap_and_names_the_version_of_each_token(build, batch, ask):
    engine = build(algorithm={"minibatches": 6})
    request = ask("12+34", stream=True, **LONG)
    engine.submit(request)
    chunks = [c for _ in range(12) for c in engine.tick()]
    pieces = engine.update(batch)
    before = len(chunks)
    for _ in range(3):  # between two pieces the old weights sample
        next(pieces)
        chunks += engine.tick()
    during = len(chunks)
    result = finish(pieces)
    assert (result.moved, result.policy_version) == (True, 1)
    chunks += run(engine)[request.request_id]
    assert [c.versions for c in chunks] == [[0]] * during + [[1]] * (60 - during)
    assert during == before + 3
    assert chunks[-1].finish == "length"


def finish(pieces):
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value


def test_tokens_before_the_swap_are_the_old_weights_own_and_the_update_does_not_touch_them(
    build, batch, ask
):
    quiet, busy = build(), build(algorithm={"minibatches": 6})
    request = ask("12+34", **LONG)
    quiet.submit(request)
    (alone,) = run(quiet)[request.request_id]
    busy.submit(request)
    pieces = busy.update(batch)
    for _ in range(8):
        busy.tick()
        next(pieces)
    (partial,) = busy.abort(request.request_id)
    count = len(partial.token_ids)
    assert 0 < count < 60
    assert partial.token_ids == alone.token_ids[:count]
    assert partial.logprobs == alone.logprobs[:count]


def test_new_requests_after_the_swap_use_nothing_that_the_old_weights_cached(build, batch, ask):
    engine, fresh = build(), build()
    survivor = ask("12+34", request_id="old", **LONG)
    engine.submit(survivor)
    for _ in range(20):
        engine.tick()
    finish(engine.update(batch))
    finish(fresh.update(batch))
    run(engine)  # the survivor ends, and its slot has keys and values of two versions
    twin = ask("12+34", request_id="twin", noise_key="other", **LONG)
    for subject in (engine, fresh):
        subject.submit(twin)
    (reused,), (recomputed,) = (run(s)["twin"] for s in (engine, fresh))
    assert reused.token_ids == recomputed.token_ids
    assert reused.logprobs == recomputed.logprobs
    ids = twin.prompt_ids + reused.token_ids
    now = logprobs_under(engine, ids, len(twin.prompt_ids))
    assert reused.logprobs == pytest.approx(now, abs=1e-4)


def test_a_request_that_had_sampled_nothing_reads_its_prompt_again(build, batch, ask):
    engine, fresh = build(), build()
    request = ask("12+34", **LONG)
    long_prompt = ask("12+34", prompt_ids=request.prompt_ids * 4, **LONG)
    engine.submit(long_prompt)
    engine.tick()  # a piece of the prompt is in the cache
    finish(engine.update(batch))
    finish(fresh.update(batch))
    fresh.submit(long_prompt)
    ((one,), (two,)) = (run(s)[long_prompt.request_id] for s in (engine, fresh))
    assert one.versions == [1] * len(one.token_ids)
    assert (one.token_ids, one.logprobs) == (two.token_ids, two.logprobs)


def test_a_mixed_answer_has_the_log_probabilities_of_new_weights_on_the_old_ones_cache(
    build, batch, ask
):
    """The importance weight divides by the probability that a token was really sampled with."""
    engine, request = build(), ask("12+34", **LONG)
    model = (
        build()._model
    )  # the old weights, then the new ones, read by a decoder of the test's own
    decoder = Decoder(model, slots=1, capacity=model.max_len)
    engine.submit(request)
    for _ in range(10):
        engine.tick()
    finish(engine.update(batch))
    (answer,) = run(engine)[request.request_id]
    swap = answer.versions.index(1)
    assert 0 < swap < 60
    expected, at = [], len(request.prompt_ids)
    logits = decoder.extend([Part([1], [0], request.prompt_ids, [at])])
    for i, token in enumerate(answer.token_ids):
        if i == swap:
            model.load_state_dict(engine._model.state_dict())
            decoder.refresh()
        if i:
            logits = decoder.extend([Part([1], [at], [answer.token_ids[i - 1]])])
            at += 1
        expected.append(float(logits[0].log_softmax(-1)[token]))
    assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_the_replay_of_an_overlapped_batch_has_the_bits_of_the_disturbed_one(build, batch, ask):
    disturbed, replayed = build(), build()
    for i in range(9):
        disturbed.submit(ask(f"{i}+1", **LONG))
    pieces = disturbed.update(batch)
    try:
        while True:
            next(pieces)
            disturbed.tick()
    except StopIteration as end:
        result = end.value
    again = replayed.train(batch)
    assert result.fingerprint == again.fingerprint
    assert (result.loss, result.importance_clipped_share) == (again.loss, 0.0)


def test_a_synchronous_engine_samples_and_trains_as_if_asynchronous_mode_did_not_exist(
    build, batch, ask
):
    """With equal requests and no overlap both engines give the same tokens; only one of them tells versions."""
    plain, apart = build(enabled=False), build()
    answers = []
    for engine in (plain, apart):
        engine.submit(ask("12+34", **LONG))
        answers.append(run(engine)["12+34"][0])
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].logprobs == answers[1].logprobs
    assert answers[0].versions == []
    assert answers[1].versions == [0] * 60


@pytest.mark.parametrize("enabled", [True, False])
def test_a_batch_that_does_not_overlap_is_refused_while_generations_run(build, batch, ask, enabled):
    engine = build(enabled=enabled)
    engine.submit(ask("1+1", **LONG))
    engine.tick()
    batch.overlapped = not enabled
    with pytest.raises(StateError, match="generations"):
        engine.train(batch)


def test_an_undone_update_changes_neither_served_weights_nor_version(build, batch, ask):
    engine = build()
    batch.rows[0].advantage = float("inf")
    engine.submit(ask("12+34", **LONG))
    engine.tick()
    before = engine.info()
    result = engine.train(batch)
    assert result.rolled_back
    assert (result.moved, result.policy_version) == (False, 0)
    assert engine.info() == before
    assert run(engine)["12+34"][0].versions == [0] * 60


def test_the_reference_of_a_resumed_engine_is_the_model_that_training_began_with(
    build, batch, tmp_path
):
    penalised = {"algorithm": {"kl_coef": 0.1}}
    engine = build(**penalised)
    assert engine.train(batch).kl == pytest.approx(0.0, abs=1e-5)
    engine.save(str(tmp_path / "ck"))
    batch.step = batch.policy_version = 2
    second = engine.train(batch)
    assert second.kl > 1e-4
    body = {"asynchronous": {"enabled": True}, "optimizer": {"lr": 5e-2}} | penalised
    resumed = TorchEngine(TrainConfig.model_validate(body), checkpoint=str(tmp_path / "ck"))
    again = resumed.train(batch)
    assert (again.kl, again.fingerprint) == (second.kl, second.fingerprint)


def test_learning_rate_and_penalty_come_with_the_batch(build, batch):
    plain, told = build(), build()
    first = plain.train(batch)
    batch.lr, batch.kl_coef = 1e-4, 0.2
    other = told.train(batch)
    assert first.kl is None
    assert other.kl == pytest.approx(0.0, abs=1e-5)
    assert other.fingerprint != first.fingerprint


def test_with_nothing_stale_an_overlapped_update_is_the_synchronous_one_up_to_rounding(
    build, batch
):
    apart, plain = build(), build(enabled=False)
    overlapped = apart.train(batch)
    batch.overlapped = False
    synchronous = plain.train(batch)
    assert overlapped.importance_clipped_share == 0.0
    assert synchronous.importance_clipped_share is None
    assert overlapped.grad_norm == pytest.approx(synchronous.grad_norm, rel=1e-4)
    assert overlapped.loss == pytest.approx(synchronous.loss, abs=1e-5)
