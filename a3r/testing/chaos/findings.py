"""What an audit found, and what came of a lane."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Findings:
    """All empty = every promise was kept."""

    lost: list[str] = field(default_factory=list[str])
    """Runs without a result, evidence that did not arrive, attempts that a fault should not have cost."""
    doubled: list[str] = field(default_factory=list[str])
    """Runs, attempts, results or evidence that are there twice."""
    foreign: list[str] = field(default_factory=list[str])
    """What does not belong to a campaign and was touched."""
    kept: list[str] = field(default_factory=list[str])
    """Resources that were not returned: processes, GPUs, leases, windows."""
    wrong: list[str] = field(default_factory=list[str])
    """Anything else."""
    runs: int = 0
    bystanders: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.foreign or self.kept or self.wrong)

    def lines(self) -> list[str]:
        """Everything, with its kind in front."""
        kinds = {
            "lost": self.lost,
            "doubled": self.doubled,
            "foreign": self.foreign,
            "not returned": self.kept,
            "wrong": self.wrong,
        }
        return [f"{kind}: {text}" for kind, texts in kinds.items() for text in texts]


@dataclass
class Outcome:
    """What came of a lane."""

    name: str
    findings: Findings = field(default_factory=Findings)
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list[float]))
    """Kind of fault -> seconds from each to the sign that things go on."""
    problem: str = ""
    """Why it could not be played to its end; empty = it was."""
    skipped: str = ""
    """What this machine lacks for it; empty = it was played."""
    wall_s: float = 0.0

    @property
    def faults(self) -> int:
        """How many happened."""
        return sum(map(len, self.recovery_s.values()))

    @property
    def clean(self) -> bool:
        """Whether it was played to its end (or could not be played here), and nothing was found."""
        return not self.problem and self.findings.clean
