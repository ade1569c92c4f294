"""A journal in memory, for questions that belong to no campaign yet (``a3r campaign check``). Forgotten with the process."""

from __future__ import annotations

from collections.abc import Iterable

from a3r.core.clock import SystemClock
from a3r.core.errors import NotFound
from a3r.core.hashing import content_hash
from a3r.core.llm import ModelReply, ModelRequest, Spent
from a3r.core.ports import Clock
from a3r.core.types import CallState
from a3r.store.llm_calls import LOST, Admit
from a3r.store.rows import LlmCallRow


class MemoryJournal:
    """The rules of ``a3r.store.llm_calls.LlmCallBook`` without a database; for one thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._calls: dict[str, LlmCallRow] = {}

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
        """Admit, then write down."""
        admit(self.llm_spent(campaign_id))
        ordinal = 1 + max((call.ordinal for call in self.calls_of(decision)), default=0)
        body = request.model_dump(mode="json")
        call = LlmCallRow(
            id=f"{decision}#{ordinal}",
            campaign_id=campaign_id,
            decision=decision,
            ordinal=ordinal,
            purpose=purpose,
            model=model,
            request_hash=content_hash(body),
            request=body,
            state=CallState.RESERVED,
            reserved_usd=reserve.usd,
            reserved_tokens=reserve.tokens,
            cost_usd=None,
            prompt_tokens=None,
            completion_tokens=None,
            reply=None,
            error="",
            at=self._clock.time(),
            settled_at=None,
        )
        self._calls[call.id] = call
        return call

    def settle_call(self, call_id: str, reply: ModelReply, cost_usd: float | None) -> LlmCallRow:
        """Keep the reply."""
        call = self._call(call_id)
        return self._keep(
            call,
            state=CallState.SETTLED,
            reply=reply.model_dump(mode="json"),
            model=reply.model or call.model,
            cost_usd=call.reserved_usd if cost_usd is None else cost_usd,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )

    def fail_call(self, call_id: str, error: str, *, billed: bool) -> LlmCallRow:
        """No reply came."""
        call, tokens = self._call(call_id), None if billed else 0
        return self._keep(
            call,
            state=CallState.FAILED,
            error=error,
            cost_usd=call.reserved_usd if billed else 0.0,
            prompt_tokens=tokens,
            completion_tokens=tokens,
        )

    def lose_calls(self, decision: str | None = None) -> int:
        """Settle what is open."""
        open_calls = [
            call.id
            for call in self._calls.values()
            if call.state is CallState.RESERVED and decision in (None, call.decision)
        ]
        for call_id in open_calls:
            self.fail_call(call_id, LOST, billed=True)
        return len(open_calls)

    def calls_of(self, decision: str) -> list[LlmCallRow]:
        """In order."""
        return [call for call in self._calls.values() if call.decision == decision]

    def llm_spent(self, campaign_id: str) -> dict[str, Spent]:
        """By purpose."""
        mine = [call for call in self._calls.values() if call.campaign_id == campaign_id]
        return {p: _sum(c for c in mine if c.purpose == p) for p in {c.purpose for c in mine}}

    def _call(self, call_id: str) -> LlmCallRow:
        if call_id not in self._calls:
            raise NotFound(f"no call {call_id!r}")
        return self._calls[call_id]

    def _keep(self, call: LlmCallRow, **changes: object) -> LlmCallRow:
        changed = call.model_copy(update={**changes, "settled_at": self._clock.time()})
        self._calls[call.id] = changed
        return changed


def _sum(calls: Iterable[LlmCallRow]) -> Spent:
    total = Spent()
    for call in calls:
        usd = call.reserved_usd if call.cost_usd is None else call.cost_usd
        known = call.prompt_tokens is not None and call.completion_tokens is not None
        tokens = (call.prompt_tokens or 0) + (call.completion_tokens or 0)
        used = tokens if known else call.reserved_tokens
        free = call.state is CallState.FAILED and used == 0
        total = total if free else total.plus(Spent(usd=usd, tokens=used, calls=1))
    return total
