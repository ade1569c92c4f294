import copy
import math

import pytest
import torch

from swarm.server.engine.weights import fingerprint
from swarm.server.ports import Span, TrainRow


def gradients(updater, rows):
    updater.accumulate(rows)
    return [p.grad.clone() for p in updater.model.parameters()]


def test_the_loss_equals_a_plain_computation_row_by_row(updater, model, rows):
    expected = 0.0
    for row in rows:
        logits = model(torch.tensor([row.ids]))[0].detach()
        old = iter(row.logprobs)
        for span in row.spans:
            for at in range(span.start, span.end):
                logprob = (logits[at - 1] / span.temperature).log_softmax(-1)[row.ids[at]]
                ratio = math.exp(float(logprob) - next(old))
                held = min(max(ratio, 0.8), 1.28)
                expected -= row.weight * min(ratio * row.advantage, held * row.advantage)
    stats = updater().apply(rows)
    assert stats.loss == pytest.approx(expected, rel=1e-4)
    assert stats.tokens == sum(len(r.logprobs) for r in rows)


def test_packing_changes_the_gradient_by_rounding_only(updater, model, rows):
    model.double()
    packed = gradients(updater(), rows)
    alone = gradients(updater(token_budget=1), rows)
    for a, b in zip(packed, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)


def test_a_merged_row_has_the_gradient_of_its_calls_one_by_one(updater, model, rows):
    model.double()
    merged, split = rows[:3], []
    for row in merged:
        done = 0
        for call, span in enumerate(row.spans):
            count = span.end - span.start
            split.append(
                TrainRow(
                    key=f"{row.key}.{call}",
                    episode_id=row.episode_id,
                    ids=row.ids[: span.end],
                    spans=[span],
                    logprobs=row.logprobs[done : done + count],
                    advantage=row.advantage,
                    weight=row.weight,
                )
            )
            done += count
    for a, b in zip(gradients(updater(), merged), gradients(updater(), split), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)


def test_the_same_rows_in_any_order_give_the_same_bits(updater, model, rows):
    before = copy.deepcopy(model.state_dict())
    prints = []
    for order in (rows, rows[::-1], rows[5:] + rows[:5]):
        model.load_state_dict(before)
        updater().apply(order)
        prints.append(fingerprint(model))
    assert len(set(prints)) == 1


def test_an_update_makes_good_tokens_likelier_and_bad_ones_rarer(updater, model, rows):
    good, bad = copy.deepcopy(rows[0]), copy.deepcopy(rows[4])
    good.advantage, bad.advantage = 1.0, -1.0
    for row in (good, bad):
        row.spans = [Span(3, 8, 1.0)]
        row.logprobs = logprobs_of(model, row)
        row.weight = 0.1
    stats = updater(lr=1e-2).apply([good, bad])
    assert stats.logprob_gap_max < 1e-5
    assert sum(logprobs_of(model, good)) > sum(good.logprobs)
    assert sum(logprobs_of(model, bad)) < sum(bad.logprobs)


def logprobs_of(model, row):
    with torch.no_grad():
        logprobs = model(torch.tensor([row.ids]))[0].log_softmax(-1)
    return [
        float(logprobs[at - 1, row.ids[at]])
        for span in row.spans
        for at in range(span.start, span.end)
    ]


@pytest.mark.parametrize("field", ["logprob", "advantage"])
def test_a_row_that_is_not_finite_rolls_weights_and_optimizer_back(updater, model, rows, field):
    subject = updater(minibatches=2)
    subject.apply(rows)
    before, moments = fingerprint(model), copy.deepcopy(subject.optimizer.state_dict()["state"])
    if field == "logprob":
        rows[-1].logprobs[0] = math.nan
    else:
        rows[-1].advantage = math.inf

    stats = subject.apply(rows)

    assert stats.rolled_back
    assert fingerprint(model) == before
    after = subject.optimizer.state_dict()["state"]
    assert all(
        torch.equal(after[k]["exp_avg"], v["exp_avg"]) and after[k]["step"] == v["step"]
        for k, v in moments.items()
    )


def test_a_malformed_row_raises_and_moves_nothing(updater, model, rows):
    before = fingerprint(model)
    rows[-1].logprobs = rows[-1].logprobs[1:]
    with pytest.raises(ValueError, match="log-probabilities"):
        updater(minibatches=3).apply(rows)
    assert fingerprint(model) == before


def test_no_rows_and_rows_without_trained_tokens_move_nothing(updater, model, rows):
    before = fingerprint(model)
    rows[0].spans, rows[0].logprobs = [], []
    assert updater().apply([]).tokens == 0
    assert updater().apply(rows[:1]).tokens == 0
    assert fingerprint(model) == before


def test_minibatches_and_epochs_each_take_their_optimizer_steps(updater, rows):
    subject = updater(minibatches=3, epochs=2)
    stats = subject.apply(rows)
    steps = {int(s["step"]) for s in subject.optimizer.state_dict()["state"].values()}
    assert steps == {6}
    assert stats.tokens == sum(len(r.logprobs) for r in rows)


def test_more_minibatches_than_episodes_step_once_an_episode(updater, rows):
    subject = updater(minibatches=50)
    subject.apply(rows[:2])
    assert {int(s["step"]) for s in subject.optimizer.state_dict()["state"].values()} == {2}


def test_the_gradient_norm_is_reported_before_the_clip(updater, rows):
    for row in rows:
        row.weight *= 1000
    assert updater(grad_clip=0.5).apply(rows).grad_norm > 0.5
