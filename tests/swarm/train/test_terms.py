"""What a batch brings along: learning rate, KL penalty, importance weights, values a token."""

import copy
import math

import pytest
import torch

from swarm.server.engine.weights import fingerprint
from swarm.server.ports import Span
from swarm.server.train.slices import finish
from swarm.server.train.update import Terms

ASYNC = Terms(importance_cap=2.0)


def gradients(updater, rows, terms=None):
    updater.accumulate(rows, terms)
    return [p.grad.clone() for p in updater.model.parameters()]


def logprobs_of(model, row):
    """Of the trained tokens at their temperatures, one by one and with a gradient."""
    logits = model(torch.tensor([row.ids]))[0]
    return torch.stack(
        [
            (logits[at - 1] / span.temperature).log_softmax(-1)[row.ids[at]]
            for span in row.spans
            for at in range(span.start, span.end)
        ]
    )


def as_sampled_by(model, rows):
    """The rows as if ``model`` had sampled them."""
    for row in rows:
        row.logprobs = logprobs_of(model, row).tolist()
    return rows


@pytest.fixture
def older(model):
    """The model as it was a few versions ago."""
    old = copy.deepcopy(model)
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in old.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return old


def test_with_nothing_stale_the_asynchronous_gradient_is_the_synchronous_one(updater, model, rows):
    model.double()
    as_sampled_by(model, rows)
    for a, b in zip(gradients(updater(), rows), gradients(updater(), rows, ASYNC), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)


def test_with_nothing_stale_no_weight_is_truncated_and_the_update_is_the_same(
    updater, model, rows, tmp_path
):
    as_sampled_by(model, rows)
    before = copy.deepcopy(model.state_dict())
    plain = updater().apply(rows)
    moved = copy.deepcopy(model.state_dict())
    model.load_state_dict(before)
    stats = updater().apply(rows, ASYNC)
    assert plain.importance_clipped_share is None
    assert stats.importance_clipped_share == 0.0
    assert stats.loss == pytest.approx(plain.loss, abs=1e-6)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, moved[name], rtol=0, atol=2e-5)


def test_the_asynchronous_gradient_equals_a_plain_computation_token_by_token(
    updater, model, older, rows
):
    model.double()
    as_sampled_by(older.double(), rows)
    found, cap = gradients(updater(), rows, Terms(importance_cap=1.1)), 1.1
    loss, clipped = torch.zeros(()), 0
    for row in rows:
        now, then = logprobs_of(model, row), torch.tensor(row.logprobs)
        ratio = (now - then).exp().detach()
        clipped += int((ratio > cap).sum())
        loss = loss - row.weight * (ratio.clamp(max=cap) * row.advantage * now).sum()
    model.zero_grad()
    loss.backward()
    for a, p in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-8)
    share = updater().apply(rows, Terms(importance_cap=cap)).importance_clipped_share
    assert share == pytest.approx(clipped / sum(len(r.logprobs) for r in rows))
    assert 0 < share < 1


@pytest.mark.parametrize("shape", [{"minibatches": 3}, {"epochs": 2}])
def test_importance_stays_that_of_the_policy_before_its_first_move(
    updater, model, older, rows, shape
):
    as_sampled_by(older, rows)
    once = updater().apply(rows, Terms(importance_cap=1.05))
    subject = updater(lr=0.05, **shape)
    model.load_state_dict(copy.deepcopy(older.state_dict()))
    as_sampled_by(older, rows)
    moved_far = subject.apply(rows, Terms(importance_cap=1.05))
    assert moved_far.importance_clipped_share == 0.0  # although the weights moved a lot meanwhile
    assert once.importance_clipped_share > 0


def test_pieces_give_the_same_bits_whatever_is_done_between_them(updater, model, rows):
    before = copy.deepcopy(model.state_dict())
    terms = Terms(importance_cap=2.0, kl_coef=0.1, token_budget=64)
    updater_of = {"reference": lambda: model, "minibatches": 2}
    in_one_go = updater(**updater_of).apply(rows, terms)
    whole = fingerprint(model)
    model.load_state_dict(before)
    pieces, count = updater(**updater_of).slices(rows, terms), 0

    def disturbed():
        nonlocal count
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value
            count += 1
            with torch.inference_mode():
                model(torch.tensor([rows[0].ids]))

    assert disturbed().loss == in_one_go.loss
    assert fingerprint(model) == whole
    assert count > 4


def test_an_update_that_is_given_up_leaves_weights_and_optimizer_as_they_were(updater, model, rows):
    subject = updater(minibatches=3)
    before = fingerprint(model)
    pieces = subject.slices(rows)
    for _ in range(3):
        next(pieces)
    pieces.close()
    assert fingerprint(model) == before
    assert not subject.optimizer.state_dict()["state"]


def test_the_learning_rate_of_the_batch_counts_for_that_batch_only(updater, model, rows):
    before = copy.deepcopy(model.state_dict())

    def distance(terms):
        start = copy.deepcopy(model.state_dict())
        subject.apply(rows, terms)
        return max(float((model.state_dict()[k] - v).abs().max()) for k, v in start.items())

    subject = updater(lr=1e-3)
    assert distance(Terms(lr=1e-5)) == pytest.approx(1e-5, rel=0.05)  # AdamW's first step is lr
    model.load_state_dict(before)
    subject = updater(lr=1e-3)
    assert distance(None) == pytest.approx(1e-3, rel=0.05)
    assert subject.optimizer.param_groups[0]["lr"] == 1e-3


def test_a_kl_penalty_equals_a_plain_computation(updater, model, older, rows):
    model.double()
    older.double()
    as_sampled_by(model, rows)
    subject = updater(reference=lambda: older)
    plain = gradients(subject, rows)
    found = gradients(subject, rows, Terms(kl_coef=0.3))
    penalty, total = torch.zeros(()), 0.0
    for row in rows:
        distance = logprobs_of(older, row).detach() - logprobs_of(model, row)
        k3 = distance.exp() - 1 - distance
        penalty = penalty + 0.3 * row.weight * k3.sum()
        total += float(k3.detach().sum())
    model.zero_grad()
    penalty.backward()
    for a, b, p in zip(found, plain, model.parameters(), strict=True):
        torch.testing.assert_close(a - b, p.grad, rtol=1e-4, atol=1e-8)
    stats = subject.apply(rows, Terms(kl_coef=0.3))
    assert stats.kl == pytest.approx(total / stats.tokens, rel=1e-4)


def test_the_distance_to_the_model_itself_is_zero_and_none_without_a_penalty(updater, model, rows):
    same = copy.deepcopy(model)
    subject = updater(reference=lambda: same, kl_coef=0.1)
    assert subject.apply(rows).kl == pytest.approx(0.0, abs=1e-6)
    assert subject.apply(rows).kl > 1e-8  # it has moved
    assert subject.apply(rows, Terms(kl_coef=0.0)).kl is None


def test_a_kl_penalty_holds_the_policy_near_the_reference(updater, model, rows):
    as_sampled_by(model, rows)
    start = copy.deepcopy(model)

    def far(coef):
        model.load_state_dict(start.state_dict())
        subject = updater(lr=3e-3, reference=lambda: start, clip_low=1e3, clip_high=1e3)
        for _ in range(20):
            stats = subject.apply(rows, Terms(kl_coef=coef))
        return stats.kl

    assert far(30.0) < 0.5 * far(1e-9)


def test_a_penalty_without_a_reference_is_refused_and_moves_nothing(updater, model, rows):
    before = fingerprint(model)
    with pytest.raises(ValueError, match="no reference"):
        updater().apply(rows, Terms(kl_coef=0.1))
    assert fingerprint(model) == before


def test_a_weight_of_zero_a_token_is_a_token_that_is_not_there(updater, model, rows):
    model.double()
    row = copy.deepcopy(rows[0])
    first, second = row.spans
    row.weights = [1.0] * (first.end - first.start) + [0.0] * (second.end - second.start)
    without = copy.deepcopy(rows[0])
    without.spans, without.logprobs = [first], row.logprobs[: first.end - first.start]
    for a, b in zip(gradients(updater(), [row]), gradients(updater(), [without]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-10)


def test_an_advantage_a_token_counts_instead_of_the_rows(updater, model, rows):
    model.double()
    told = copy.deepcopy(rows[:1])
    told[0].advantages, told[0].advantage = [rows[0].advantage] * len(rows[0].logprobs), 123.0
    for a, b in zip(gradients(updater(), told), gradients(updater(), rows[:1]), strict=True):
        torch.testing.assert_close(a, b)
    told[0].advantages = [0.0] * len(told[0].logprobs)
    assert all(not g.any() for g in gradients(updater(), told))


def test_two_rows_of_one_key_cannot_be_told_apart(updater, model, rows):
    rows[1].key = rows[0].key
    with pytest.raises(ValueError, match="same key"):
        updater(reference=lambda: model).apply(rows, Terms(kl_coef=0.1))


def test_a_sampled_token_that_had_no_probability_rolls_the_update_back(updater, model, rows):
    before = fingerprint(model)
    rows[3].logprobs[0] = math.nan
    assert updater().apply(rows, ASYNC).rolled_back
    assert fingerprint(model) == before


def test_finish_returns_what_the_work_returns():
    def work():
        yield
        return Span(1, 2, 1.0)

    assert finish(work()).end == 2
