"""The calls of one decision in order: replayed where the journal has them, else admitted, written down, sent, settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from a3r.core.errors import A3RError, BudgetSpent, JobFailed, ModelRefused, ModelUnavailable
from a3r.core.hashing import content_hash
from a3r.core.llm import LanguageModel, ModelReply, ModelRequest, Spent
from a3r.core.types import CallState
from a3r.leader.llm.budget import Limits, reserve_for
from a3r.store.llm_calls import Admit
from a3r.store.rows import LlmCallRow


class Journal(Protocol):
    """Where calls are written down: the Store, or ``MemoryJournal`` for questions that belong to no campaign."""

    def reserve_call(
        self,
        campaign_id: str,
        decision: str,
        purpose: str,
        model: str,
        request: ModelRequest,
        reserve: Spent,
        admit: Admit,
    ) -> LlmCallRow:
        """See ``a3r.store.llm_calls.LlmCallBook``."""
        ...

    def settle_call(self, call_id: str, reply: ModelReply, cost_usd: float | None) -> LlmCallRow:
        """See ``a3r.store.llm_calls.LlmCallBook``."""
        ...

    def fail_call(self, call_id: str, error: str, *, billed: bool) -> LlmCallRow:
        """See ``a3r.store.llm_calls.LlmCallBook``."""
        ...

    def lose_calls(self, decision: str | None = None) -> int:
        """See ``a3r.store.llm_calls.LlmCallBook``."""
        ...

    def calls_of(self, decision: str) -> list[LlmCallRow]:
        """See ``a3r.store.llm_calls.LlmCallBook``."""
        ...


class Exchange:
    """One decision's calls. Begins at the first, whatever was journalled before."""

    def __init__(
        self,
        journal: Journal,
        model: LanguageModel | None,
        campaign_id: str,
        decision: str,
        purpose: str,
        limits: Limits,
        fallbacks: Sequence[LanguageModel] = (),
    ) -> None:
        """A call that a crash left without word is settled at its full reserve here.

        ``fallbacks`` are asked in order when ``model`` gives no reply; each such call is admitted and written down as well.
        """
        self._journal, self._limits = journal, limits
        self._models = (() if model is None else (model,)) + tuple(fallbacks)
        self._campaign_id, self._decision, self._purpose = campaign_id, decision, purpose
        calls = journal.calls_of(decision)
        if any(call.state is CallState.RESERVED for call in calls):
            journal.lose_calls(decision)
        self._replies = [call for call in calls if call.state is CallState.SETTLED]
        self.bought = 0
        """Calls that were sent and answered, replays not counted."""

    def recorded(self) -> ModelRequest | None:
        """The request that comes next in the journal; None once the journal is at its end."""
        if not self._replies:
            return None
        return ModelRequest.model_validate(self._replies[0].request)

    def reply(self, request: ModelRequest) -> ModelReply:
        """The model's reply, from the journal if it is there.

        Raises:
            JobFailed: the journal has another request at this place.
            BudgetSpent: the call is not admitted.
            ModelUnavailable: worth another try later; settled (at full reserve where it may have been billed).
            ModelRefused: a person must act, or no model is set.
        """
        if self._replies:
            return self._replayed(self._replies.pop(0), request)
        if not self._models:
            raise ModelRefused(
                "no language model is set",
                hint="Set A3R_LLM=provider/model (and the provider's key), then 'a3r daemon stop' and resume the campaign.",
            )
        faults: list[ModelUnavailable | ModelRefused] = []
        for model in self._models:
            try:
                return self._buy(model, request)
            except (ModelUnavailable, ModelRefused) as error:
                faults.append(error)
            except BudgetSpent:
                # A dearer fallback: what the models before it said is the better reason.
                if not faults:
                    raise
        raise _gravest(faults)

    def _replayed(self, call: LlmCallRow, request: ModelRequest) -> ModelReply:
        if call.request_hash != content_hash(request.model_dump(mode="json")):
            raise JobFailed(
                f"the call {call.id!r} was made with another request than the one that is made now, so its reply can not "
                "be replayed (a3r or what the request tells of changed in between)",
                hint="'a3r campaign resume' asks anew, with new calls.",
                call=call.id,
            )
        return ModelReply.model_validate(call.reply)

    def _buy(self, model: LanguageModel, request: ModelRequest) -> ModelReply:
        reserve = reserve_for(model, request)
        call = self._journal.reserve_call(
            self._campaign_id,
            self._decision,
            self._purpose,
            model.name,
            request,
            reserve,
            lambda spent: self._limits.admit(self._purpose, reserve, spent),
        )
        try:
            reply = model.complete(request)
        except A3RError as error:
            billed = bool(error.details.get("maybe_billed"))
            self._journal.fail_call(call.id, error.message, billed=billed)
            raise
        except Exception as error:
            self._journal.fail_call(call.id, f"{type(error).__name__}: {error}", billed=True)
            raise
        self._journal.settle_call(call.id, reply, cost_of(model, reply))
        self.bought += 1
        return reply


def _gravest(
    faults: Sequence[ModelUnavailable | ModelRefused],
) -> ModelUnavailable | ModelRefused:
    """What to tell when no model replied: as long as one may reply later, that one, and the shortest wait."""
    later = [fault for fault in faults if isinstance(fault, ModelUnavailable)]
    if not later:
        return faults[0]
    return min(later, key=lambda fault: float(fault.details.get("retry_after_s") or 0.0))


def cost_of(model: LanguageModel, reply: ModelReply) -> float | None:
    """USD that the reply cost; None when the provider did not say how many tokens it took."""
    price = model.price()
    if reply.cost_usd is not None:
        return reply.cost_usd
    if price is None or reply.prompt_tokens is None or reply.completion_tokens is None:
        return None
    return reply.prompt_tokens * price.prompt_usd + reply.completion_tokens * price.completion_usd
