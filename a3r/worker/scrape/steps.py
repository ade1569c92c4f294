"""One vocabulary for what foreign trainers print."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class ScrapedStep:
    """What one line said of one step."""

    step: int
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    """Under the names of swarm's StepMetrics where there is one (``reward_mean``, ``loss``, ``grad_norm``, ``kl``, ``entropy``, ``lr``,
    ``response_tokens_mean``, ``clip_fraction``), else under the trainer's own. NaN and infinity stay out."""
    not_finite: tuple[str, ...] = ()
    """Metrics whose value was NaN or infinite."""


class Scraper(Protocol):
    """Reads the lines of one trainer."""

    def line(self, text: str) -> ScrapedStep | None:
        """What a line says; None when it is of something else."""
        ...


def scraped(step: int, said: dict[str, float], names: dict[str, str]) -> ScrapedStep:
    """Rename and sort out what was said; a name that stands for two keeps the first that ``names`` lists."""
    ordered = sorted(said, key=lambda key: list(names).index(key) if key in names else len(names))
    metrics: dict[str, float] = {}
    bad: list[str] = []
    for key in ordered:
        name = names.get(key, key)
        if not math.isfinite(said[key]):
            bad.append(name)
        elif name not in metrics:
            metrics[name] = said[key]
    return ScrapedStep(step, metrics, tuple(bad))


def number(text: str) -> float | None:
    """A number as Python, torch or numpy print one: ``0.5``, ``1e-05``, ``nan``, ``np.float64(0.5)``, ``tensor(0.5)``; else None."""
    inner = text.strip().strip("'\"")
    if inner.endswith(")") and "(" in inner:
        inner = inner[inner.index("(") + 1 : -1].split(",")[0]
    inner = inner.removesuffix("%").replace(",", "")
    try:
        return float(inner)
    except ValueError:
        return None
