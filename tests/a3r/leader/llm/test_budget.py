"""Nothing is sent that the campaign may not pay for, and the report's share is there at the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a3r.core.errors import BudgetSpent, JobFailed, ModelError, ModelRefused, ModelUnavailable
from a3r.core.llm import ModelMessage, ModelReply, ModelRequest, Price, Spent
from a3r.leader.llm.budget import SYNTHESIS_SHARE, Limits, reserve_for, sum_of
from a3r.leader.llm.desk import Desk
from a3r.leader.llm.memory_journal import MemoryJournal
from a3r.testing.scripted_model import ScriptedModel
from a3r.testing.stand_in.script import Answer, said

HELLO = [ModelMessage(role="user", content="hello")]
ONE = Spent(usd=1.0, tokens=100, calls=1)


def _limit(limits: Limits, purpose: str, spent: dict[str, Spent]) -> str | None:
    try:
        limits.admit(purpose, ONE, spent)
    except BudgetSpent as error:
        return str(error.details["limit"])
    return None


@pytest.mark.parametrize(
    ("limits", "plan", "interpret"),
    [
        (Limits(usd=10), None, None),
        (Limits(usd=1.17), "usd", None),
        (Limits(usd=0.9), "usd", "usd"),
        (Limits(usd=None, tokens=100), "tokens", None),
        (Limits(usd=None, tokens=99), "tokens", "tokens"),
        (Limits(usd=None, calls=1), "calls", None),
        (Limits(usd=None, calls=0), "calls", "calls"),
        (Limits(usd=None), None, None),
        (Limits(time_is_up=lambda: True), "wall_clock", None),
    ],
)
def test_a_call_is_admitted_on_its_full_reserve(
    limits: Limits, plan: str | None, interpret: str | None
) -> None:
    assert _limit(limits, "plan", {}) == plan
    assert _limit(limits, "interpret", {}) == interpret


def test_what_planning_spent_leaves_the_reports_share_alone() -> None:
    limits = Limits(usd=10.0, share=0.2)
    spent = {"plan": Spent(usd=5.0), "repair": Spent(usd=2.0)}
    assert _limit(limits, "plan", spent) is None
    assert _limit(limits, "plan", {**spent, "repair": Spent(usd=2.1)}) == "usd"
    assert _limit(limits, "plan", {**spent, "interpret": Spent(usd=2.0)}) is None
    assert _limit(limits, "plan", {**spent, "interpret": Spent(usd=2.1)}) == "usd"
    assert _limit(limits, "interpret", {**spent, "interpret": Spent(usd=2.1)}) == "usd"


def test_the_refusal_says_what_is_left_and_what_is_kept() -> None:
    with pytest.raises(BudgetSpent, match=r"1 USD, 0\.8 of 1 are left \(0\.2 are kept"):
        Limits(usd=1.0, share=0.2).admit("plan", ONE, {})


def test_a_goals_budget_gives_the_limits() -> None:
    found = Limits.of({"llm_usd": 2.5, "llm_tokens": 10, "max_stages": 3, "synthesis_share": 0.3})
    assert (found.usd, found.tokens, found.calls, found.share) == (2.5, 10, None, 0.3)
    assert Limits.of({}).usd == Limits().usd
    assert Limits.of({"llm_usd": None}).usd is None


def test_a_model_without_a_price_is_refused_before_anything_is_sent(office: Any) -> None:
    model = ScriptedModel([said("hello")], price=None)
    with pytest.raises(ModelRefused, match=r"scripted/model.*not known") as caught:
        office.ask(office.desk(model, Limits(usd=None)))
    assert "A3R_LLM_PRICE" in caught.value.hint
    assert (model.asked, office.states()) == ([], [])


def test_a_refused_call_leaves_no_trace_and_nothing_is_sent(office: Any) -> None:
    model = ScriptedModel([said("hello")])
    with pytest.raises(BudgetSpent):
        office.ask(office.desk(model, Limits(usd=1e-6)))
    assert (model.asked, office.states()) == ([], [])


def test_usage_that_nobody_counts_is_taken_at_the_full_reserve(office: Any) -> None:
    class Silent(ScriptedModel):
        def complete(self, request: ModelRequest) -> ModelReply:
            whole = super().complete(request)
            return whole.model_copy(update={"prompt_tokens": None, "completion_tokens": None})

    office.ask(office.desk(Silent([said({"kind": "stop", "runs": 1})])))
    (call,) = office.store.llm_calls(office.campaign_id)
    assert (call.cost_usd, call.prompt_tokens) == (call.reserved_usd, None)
    assert office.spent().tokens == call.reserved_tokens


def test_the_price_of_the_model_that_answered_counts(office: Any) -> None:
    class Fallback(ScriptedModel):
        def complete(self, request: ModelRequest) -> ModelReply:
            whole = super().complete(request)
            return whole.model_copy(update={"model": "other/model", "cost_usd": 0.25})

    office.ask(office.desk(Fallback([said({"kind": "stop", "runs": 1})])))
    (call,) = office.store.llm_calls(office.campaign_id)
    assert (call.cost_usd, call.model) == (0.25, "other/model")


def test_a_call_that_may_have_been_billed_counts_in_full(office: Any) -> None:
    def hung(_request: ModelRequest) -> Answer:
        raise ModelUnavailable("no answer in time", maybe_billed=True)

    with pytest.raises(ModelUnavailable):
        office.ask(office.desk(hung))
    (call,) = office.store.llm_calls(office.campaign_id)
    assert (call.state.value, call.cost_usd) == ("failed", call.reserved_usd)
    assert office.spent() == Spent(usd=call.reserved_usd, tokens=call.reserved_tokens, calls=1)


class Crash(BaseException):
    """The process ended here."""


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_over_any_crashes_no_budget_is_overrun(data: st.DataObject) -> None:
    """Calls end well, fail, crash before or after the reply: what may have been billed never exceeds the limit."""
    journal, limits = MemoryJournal(), Limits(usd=0.3, tokens=60_000, calls=12)
    billed = Spent()
    price = Price(prompt_usd=1e-6, completion_usd=4e-6)

    def script(request: ModelRequest) -> Answer:
        nonlocal billed
        end = data.draw(st.sampled_from(["well", "limited", "lost", "lost_after"]))
        if end == "limited":
            return Answer(status=429)
        billed = billed.plus(reserve_for(model, request))
        if end.startswith("lost"):
            raise Crash
        return Answer("x" * 3 * request.max_tokens)

    model = ScriptedModel(script, price=price)
    for n in range(30):
        purpose = data.draw(st.sampled_from(["plan", "interpret"]))
        desk = Desk(journal, model, "c", limits)
        try:
            desk.ask(f"d{n % 5}", purpose, HELLO, str, max_tokens=data.draw(st.integers(1, 9000)))
        except (Crash, ModelError):
            continue
        except JobFailed as error:
            assert "another request" in error.message  # noqa: PT017
    total = sum_of(journal.llm_spent("c").items())
    for unit, limit in (("usd", 0.3), ("tokens", 60_000), ("calls", 12)):
        assert getattr(billed, unit) <= limit + 1e-9
        assert getattr(total, unit) <= limit + 1e-9
    planned = journal.llm_spent("c").get("plan", Spent())
    assert planned.usd <= 0.3 * (1 - SYNTHESIS_SHARE) + 1e-9
