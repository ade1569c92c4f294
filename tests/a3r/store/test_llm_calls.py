"""The ledger of language model calls: settled once, summed by purpose, admitted one at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from a3r.core.errors import BudgetSpent, Conflict, NotFound
from a3r.core.llm import ModelMessage, ModelReply, ModelRequest, Spent
from a3r.store.store import Store

REQUEST = ModelRequest(messages=(ModelMessage(role="user", content="hé \N{SNOWMAN}"),))
RESERVE = Spent(usd=1.0, tokens=100, calls=1)


def _admitted(_spent: Mapping[str, Spent]) -> None:
    """Anything goes."""


def _reserve(store: Store, campaign: str, purpose: str = "plan", decision: str = "d") -> str:
    row = store.reserve_call(campaign, decision, purpose, "m", REQUEST, RESERVE, _admitted)
    return row.id


def test_calls_of_a_decision_are_numbered_from_one(study: Any, store: Store) -> None:
    ids = [_reserve(store, study.campaign_id, decision=d) for d in ("a", "a", "b")]
    assert ids == ["a#1", "a#2", "b#1"]
    assert [call.id for call in store.calls_of("a")] == ["a#1", "a#2"]
    assert ModelRequest.model_validate(store.calls_of("b")[0].request) == REQUEST


def test_a_call_is_settled_once(study: Any, store: Store) -> None:
    call = _reserve(store, study.campaign_id)
    store.settle_call(call, ModelReply(text="x", prompt_tokens=3, completion_tokens=4), 0.25)
    for again in (
        lambda: store.settle_call(call, ModelReply(text="y"), 0.0),
        lambda: store.fail_call(call, "late", billed=False),
    ):
        with pytest.raises(Conflict, match="settled once"):
            again()
    assert store.lose_calls() == 0
    with pytest.raises(NotFound):
        store.fail_call("d#9", "", billed=False)


def test_what_was_spent_is_summed_by_purpose_with_open_calls_at_their_reserve(
    study: Any, store: Store
) -> None:
    campaign = study.campaign_id
    assert store.llm_spent(campaign) == {}
    settled = _reserve(store, campaign)
    store.settle_call(settled, ModelReply(text="", prompt_tokens=3, completion_tokens=4), 0.25)
    free, billed = _reserve(store, campaign), _reserve(store, campaign)
    store.fail_call(free, "429", billed=False)
    store.fail_call(billed, "timeout", billed=True)
    _reserve(store, campaign, purpose="interpret")
    assert store.llm_spent(campaign) == {
        "plan": Spent(usd=1.25, tokens=107, calls=2),
        "interpret": RESERVE,
    }


def test_lost_calls_of_one_decision_or_of_all_are_settled_in_full(study: Any, store: Store) -> None:
    for decision in ("a", "b"):
        _reserve(store, study.campaign_id, decision=decision)
    assert (store.lose_calls("a"), store.lose_calls(), store.lose_calls()) == (1, 1, 0)
    assert store.llm_spent(study.campaign_id)["plan"] == Spent(usd=2.0, tokens=200, calls=2)
    assert all(call.error for call in store.llm_calls(study.campaign_id))


def test_two_callers_are_never_admitted_on_the_same_money(study: Any, store: Store) -> None:
    admitted: list[str] = []
    together = threading.Barrier(8, timeout=30)

    def admit(spent: Mapping[str, Spent]) -> None:
        if spent.get("plan", Spent()).usd + RESERVE.usd > 3.0:
            raise BudgetSpent("no more")

    def call(number: int) -> None:
        together.wait()
        try:
            row = store.reserve_call(
                study.campaign_id, f"d{number}", "plan", "m", REQUEST, RESERVE, admit
            )
        except BudgetSpent:
            return
        admitted.append(row.id)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(admitted) == 3
    assert store.llm_spent(study.campaign_id)["plan"].usd == 3.0
