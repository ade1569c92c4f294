"""The referee on the corpus: precision and recall of each rule, and what became of clean runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from a3r.report.records import Records
from a3r.report.referee import Grade, RefereeVerdict, referee
from a3r.report.referee.rules import RULES
from a3r.testing.faults.clean import CLEAN
from a3r.testing.faults.seeded import FAULTS

EACH = 40
"""Cases of each kind."""
PUBLISHED = 2000
"""Number of the first case that is scored; those below were looked at while the rules were made."""


class Case(NamedTuple):
    """One run of the corpus; a clean one has no ``rule``."""

    kind: str
    number: int
    records: Records
    rule: str = ""
    also: frozenset[str] = frozenset()
    strength: float = 0.0


@dataclass
class Tally:
    """Of one rule: how often it spoke rightly, wrongly, and not though it should have."""

    rule: str
    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float | None:
        """Share of its findings that are of a seeded fault; None when it never spoke."""
        said = self.right + self.wrong
        return self.right / said if said else None

    @property
    def recall(self) -> float | None:
        """Share of the seeded faults that it found; None when none was seeded."""
        there = self.right + self.missed
        return self.right / there if there else None


@dataclass(frozen=True)
class CorpusScore:
    """What ``make trust`` and the docs print."""

    rules: tuple[Tally, ...]
    """In the order of the referee's rules; those that only make notes are left out."""
    faulty: int
    clean: int
    clean_suspect: int
    clean_invalid: int
    """Clean runs that were excluded: must be 0."""

    @property
    def precision(self) -> float:
        """Of all findings together."""
        right = sum(t.right for t in self.rules)
        return right / max(right + sum(t.wrong for t in self.rules), 1)

    @property
    def recall(self) -> float:
        """Of all seeded faults together, weak ones included."""
        return sum(t.right for t in self.rules) / max(self.faulty, 1)


def corpus(each: int = EACH, first: int = PUBLISHED) -> Iterator[Case]:
    """Cases ``first``, ``first + 1``, ... of every kind, faults first; a case depends on its kind and number only."""
    for kind, fault in FAULTS.items():
        for number in range(first, first + each):
            rng = random.Random(f"faults/{kind}/{number}")  # noqa: S311 - not a secret
            strength = rng.random()
            made = fault.make(f"{kind}-{number}", rng, strength)
            yield Case(kind, number, made.records(), fault.rule, fault.also, strength)
    for kind, make in CLEAN.items():
        for number in range(first, first + each):
            rng = random.Random(f"clean/{kind}/{number}")  # noqa: S311 - not a secret
            yield Case(kind, number, make(f"{kind}-{number}", rng).records())


@cache
def corpus_score(each: int = EACH, first: int = PUBLISHED) -> CorpusScore:
    """Judge the whole corpus (seconds)."""
    tallies = {r.name: Tally(r.name) for r in RULES}
    faulty = clean = suspect = invalid = 0
    for case in corpus(each, first):
        verdicts = list(referee(case.records).values())
        said = doubted(verdicts)
        faulty, clean = faulty + bool(case.rule), clean + (not case.rule)
        if case.rule:
            found = tallies[case.rule]
            found.right, found.missed = (
                found.right + (case.rule in said),
                found.missed + (case.rule not in said),
            )
        else:
            grades = {v.grade for v in verdicts}
            suspect, invalid = (
                suspect + (Grade.SUSPECT in grades),
                invalid + (Grade.INVALID in grades),
            )
        for rule in said - {case.rule} - case.also:
            tallies[rule].wrong += 1
    shown = tuple(t for t in tallies.values() if t.right or t.wrong or t.missed)
    return CorpusScore(shown, faulty, clean, suspect, invalid)


def doubted(verdicts: list[RefereeVerdict]) -> set[str]:
    """Rules that cast doubt on any of these runs."""
    return {f.rule for v in verdicts for f in v.doubts}
