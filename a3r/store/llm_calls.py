"""Calls of a language model: written before they are sent, settled before their reply is used. The budget's ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlmodel import Session, col, func, select

from a3r.core.errors import Conflict
from a3r.core.hashing import content_hash
from a3r.core.llm import ModelReply, ModelRequest, Spent
from a3r.core.types import CallState
from a3r.store.book import Book, fetch
from a3r.store.rows import LlmCallRow
from a3r.store.tables import CampaignTable, LlmCallTable

Admit = Callable[[Mapping[str, Spent]], None]
"""Raises when the call may not be paid for; is given what each purpose has taken so far."""
LOST = "no word of it: the process that made the call ended before a reply was written down"


class LlmCallBook(Book):
    """What the Store says about calls of a language model."""

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
        """Write down a call that is about to be made, under the decision's next ordinal (1 first), at its full reserve.

        ``admit`` runs inside the same transaction, so that no two calls are admitted on the same money; what it raises
        leaves nothing behind.
        """
        at = self._clock.time()
        with self._db.write() as session:
            fetch(session, CampaignTable, campaign_id, "campaign")
            admit(_spent(session, campaign_id))
            latest = session.exec(
                select(func.max(LlmCallTable.ordinal)).where(LlmCallTable.decision == decision)
            ).one()
            ordinal = (latest or 0) + 1
            body = request.model_dump(mode="json")
            record = LlmCallTable(
                id=f"{decision}#{ordinal}",
                campaign_id=campaign_id,
                decision=decision,
                ordinal=ordinal,
                purpose=purpose,
                model=model,
                request_hash=content_hash(body),
                request=body,
                state=CallState.RESERVED.value,
                reserved_usd=reserve.usd,
                reserved_tokens=reserve.tokens,
                at=at,
            )
            session.add(record)
            session.flush()
            return _row(record)

    def settle_call(self, call_id: str, reply: ModelReply, cost_usd: float | None) -> LlmCallRow:
        """Write down the reply and what it cost; ``cost_usd`` None: nobody said, so it stays at its reserve.

        Raises:
            Conflict: it was settled already.
        """
        with self._db.write() as session:
            record = _open_call(session, call_id)
            record.state = CallState.SETTLED.value
            record.reply = reply.model_dump(mode="json")
            record.model = reply.model or record.model
            record.cost_usd = record.reserved_usd if cost_usd is None else cost_usd
            record.prompt_tokens = reply.prompt_tokens
            record.completion_tokens = reply.completion_tokens
            record.settled_at = self._clock.time()
            return _row(record)

    def fail_call(self, call_id: str, error: str, *, billed: bool) -> LlmCallRow:
        """Write down that no reply came; ``billed``: it may have cost something, so it counts at its full reserve.

        Raises:
            Conflict: it was settled already.
        """
        with self._db.write() as session:
            record = _open_call(session, call_id)
            _fail(record, error, self._clock.time(), billed=billed)
            return _row(record)

    def lose_calls(self, decision: str | None = None) -> int:
        """Settle calls (of one decision, or all) of which a crash left no word, at their full reserve; return how many."""
        with self._db.write() as session:
            query = select(LlmCallTable).where(LlmCallTable.state == CallState.RESERVED.value)
            if decision is not None:
                query = query.where(LlmCallTable.decision == decision)
            records = list(session.exec(query))
            for record in records:
                _fail(record, LOST, self._clock.time(), billed=True)
            return len(records)

    def calls_of(self, decision: str) -> list[LlmCallRow]:
        """The calls of one decision in order."""
        with self._db.read() as session:
            query = select(LlmCallTable).where(LlmCallTable.decision == decision)
            return [_row(r) for r in session.exec(query.order_by(col(LlmCallTable.ordinal)))]

    def llm_calls(self, campaign_id: str) -> list[LlmCallRow]:
        """The campaign's calls in the order in which they were made."""
        with self._db.read() as session:
            query = select(LlmCallTable).where(LlmCallTable.campaign_id == campaign_id)
            order = (col(LlmCallTable.at), col(LlmCallTable.decision), col(LlmCallTable.ordinal))
            return [_row(r) for r in session.exec(query.order_by(*order))]

    def llm_spent(self, campaign_id: str) -> dict[str, Spent]:
        """What the campaign's calls took, by purpose; empty without a call."""
        with self._db.read() as session:
            return _spent(session, campaign_id)


def _open_call(session: Session, call_id: str) -> LlmCallTable:
    record = fetch(session, LlmCallTable, call_id, "call")
    if record.state != CallState.RESERVED.value:
        raise Conflict(f"call {call_id!r} is {record.state}: it is settled once")
    return record


def _fail(record: LlmCallTable, error: str, at: float, *, billed: bool) -> None:
    record.state, record.error, record.settled_at = CallState.FAILED.value, error, at
    record.cost_usd = record.reserved_usd if billed else 0.0
    # Tokens that nobody counted stay None: the sum takes the reserve for them.
    record.prompt_tokens = record.completion_tokens = None if billed else 0


def _spent(session: Session, campaign_id: str) -> dict[str, Spent]:
    used = func.coalesce(
        col(LlmCallTable.prompt_tokens) + col(LlmCallTable.completion_tokens),
        col(LlmCallTable.reserved_tokens),
    )
    usd = func.coalesce(col(LlmCallTable.cost_usd), col(LlmCallTable.reserved_usd))
    free = (col(LlmCallTable.state) == CallState.FAILED.value) & (used == 0)
    found = session.exec(
        select(LlmCallTable.purpose, func.sum(usd), func.sum(used), func.count())
        .where(LlmCallTable.campaign_id == campaign_id, ~free)
        .group_by(LlmCallTable.purpose)
    )
    return {
        purpose: Spent(usd=total, tokens=tokens, calls=calls)
        for purpose, total, tokens, calls in found
    }


def _row(record: LlmCallTable) -> LlmCallRow:
    return LlmCallRow.model_validate(record.model_dump())
