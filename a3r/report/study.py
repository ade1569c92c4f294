"""What every section of a report looks at: records, and the results computed from them once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from a3r.report.analysis import Analysis, analyse
from a3r.report.claims import Claim, compute_claims
from a3r.report.gains import RunGain, run_gains
from a3r.report.question import Question, question_of
from a3r.report.records import Records, RunRecord
from a3r.report.referee import RefereeVerdict, referee
from a3r.report.synthesis import Synthesis, synthesis_of


@dataclass(frozen=True)
class Study:
    """One campaign as the report sees it. Everything follows from ``records``."""

    records: Records

    @cached_property
    def question(self) -> Question:
        """What was asked."""
        return question_of(self.records.campaign.goal_spec)

    @cached_property
    def gains(self) -> list[RunGain]:
        """One entry a planned run."""
        return run_gains(self.records, self.question)

    @cached_property
    def analysis(self) -> Analysis:
        """The answer as values."""
        return analyse(self.records)

    @cached_property
    def claims(self) -> list[Claim]:
        """Every claim, in the order in which code makes them."""
        return compute_claims(self.analysis, self.gains, self.question)

    @cached_property
    def synthesis(self) -> Synthesis:
        """Order and prose that a language model gave, as far as they are admissible."""
        return synthesis_of(self.records, self.claims)

    @cached_property
    def verdicts(self) -> dict[str, RefereeVerdict]:
        """Run id -> what the referee says of it."""
        return referee(self.records)

    @cached_property
    def reused(self) -> dict[str, str]:
        """Run id -> where its evidence was taken from, for runs that were not run here."""
        found = ((run.id, run.accepted()) for run in self.records.runs)
        return {run_id: a.reused for run_id, a in found if a is not None and a.reused}

    def run_label(self, run: RunRecord) -> str:
        """Blueprint's name and seed."""
        return f"{self.records.blueprint(run.blueprint_id).name} seed {run.seed}"
