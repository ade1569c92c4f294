"""Findings: what finished campaigns established, kept across campaigns and found by words (SQLite FTS5)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import RowMapping, text
from sqlmodel import Session

from a3r.core.hashing import canonical_json
from a3r.store.book import Book
from a3r.store.rows import FindingRow

_COLUMNS = "text, subject, question, id, campaign_id, data, at"
_WORD = re.compile(r"\w+")
MAX_WORDS = 40
"""Of one query; more words find nothing that these do not."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding before it is filed."""

    id: str
    """``<campaign>/<claim>``."""
    text: str
    """The claim's sentence."""
    subject: str
    question: str
    """What was asked: kind, factors, task, model."""
    data: dict[str, Any] = field(default_factory=dict[str, Any])


class FindingBook(Book):
    """What the Store says about findings."""

    def file_findings(self, campaign_id: str, found: Sequence[Found], at: float) -> None:
        """Make these the campaign's findings, in place of what it had filed before; a repeat changes nothing."""
        with self._db.write() as session:
            _run(session, "DELETE FROM findings WHERE campaign_id = :c", {"c": campaign_id})
            for one in found:
                _run(
                    session,
                    f"INSERT INTO findings ({_COLUMNS}) VALUES (:text, :subject, :question, :id, :c, :data, :at)",  # noqa: S608 - fixed names
                    {
                        "text": one.text,
                        "subject": one.subject,
                        "question": one.question,
                        "id": one.id,
                        "c": campaign_id,
                        "data": canonical_json(one.data),
                        "at": at,
                    },
                )

    def search_findings(
        self, words: str, limit: int = 20, *, without: str = ""
    ) -> list[FindingRow]:
        """Findings with any of the words, the best match first; ``without`` leaves out a campaign's own.

        Operators mean nothing: every word is a word. Words match by their beginning. Nothing is found without words.
        """
        asked = list(dict.fromkeys(_WORD.findall(words.lower())))[:MAX_WORDS]
        if not asked:
            return []
        query = " OR ".join(f'"{word}"*' for word in asked)
        statement = (
            f"SELECT {_COLUMNS} FROM findings WHERE findings MATCH :q AND campaign_id != :own "  # noqa: S608 - fixed names
            "ORDER BY bm25(findings, 4.0, 2.0, 1.0), at DESC, id LIMIT :n"
        )
        with self._db.read() as session:
            given = {"q": query, "own": without, "n": max(0, limit)}
            return [_row(r) for r in _run(session, statement, given)]

    def findings(self, campaign_id: str | None = None) -> list[FindingRow]:
        """All findings (or one campaign's), newest campaign first, in the order of their claims."""
        where = "" if campaign_id is None else "WHERE campaign_id = :c "
        statement = f"SELECT {_COLUMNS} FROM findings {where}ORDER BY at DESC, rowid"  # noqa: S608 - fixed names
        with self._db.read() as session:
            given = {} if campaign_id is None else {"c": campaign_id}
            return [_row(r) for r in _run(session, statement, given)]


def _run(session: Session, statement: str, given: dict[str, Any]) -> list[RowMapping]:
    found = session.connection().execute(text(statement), given)
    return list(found.mappings()) if found.returns_rows else []


def _row(found: RowMapping) -> FindingRow:
    return FindingRow.model_validate({**found, "data": json.loads(found["data"])})
