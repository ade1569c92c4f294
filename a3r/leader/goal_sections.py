"""The sections of a goal's front matter, each by its shape: question, factors, metric, criterion, seeds, budget."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from a3r.core.types import Direction
from a3r.leader.factors import Scalar

MOST_LEVELS = 200
"""Of one factor. Each is a cell of many runs, so more is a slip of the pen, and a range of millions would fill the memory."""
LONGEST_WORD = 500
"""Characters of a level that is a word; names are short, and what they stand for may be long."""

MOST_SEEDS = 1000
"""Of one cell in one stage."""


class Section(BaseModel):
    """A frozen part of the goal; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Question(Section):
    """What is asked."""

    kind: Literal["minimum", "best", "comparison", "interaction"]
    """minimum: the smallest level of ``factor`` that still trains. best: the level with the highest metric. comparison: each
    level against ``baseline``. interaction: whether ``across`` changes what ``factor`` does."""
    factor: str
    across: str | None = None
    """Asked once for each level of this factor; None: asked once. An interaction needs it."""
    baseline: Scalar | None = None
    """The level that a comparison or an interaction compares with; None: the first one."""
    of: Literal["effect", "minimum"] = "effect"
    """What an interaction looks at: the effect of ``factor`` on the metric, or the minimum of ``factor`` that still trains."""

    @property
    def asks_minimum(self) -> bool:
        """Whether the answer is a smallest level: a minimum, or an interaction of minima."""
        return self.kind == "minimum" or (self.kind == "interaction" and self.of == "minimum")


class Factor(Section):
    """A factor's levels; numbers ascend, words stay as they are listed.

    A ``range`` is turned into levels when it is read. Levels may be names for values that are not one number or word
    (a task mix, several settings at once): ``levels: {even: {a: 0.5, b: 0.5}, steep: {a: 0.9, b: 0.1}}``.
    """

    levels: tuple[Scalar, ...]
    path: str | None = None
    """Where the value goes, as under ``settings``; None: the factor's own name says it."""
    values: dict[str, JsonValue] | None = None
    """Of named levels: what each name stands for."""

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        given = cast("dict[str, Any]", value)
        if "range" in given:
            rest = {k: v for k, v in given.items() if k == "path"}
            spread = {k: v for k, v in given.items() if k != "path"}
            return {"levels": FactorRange.model_validate(spread).levels(), **rest}
        levels = given.get("levels")
        if isinstance(levels, dict) and given.get("values") is None:
            named = cast("dict[Any, Any]", levels)
            return {**given, "levels": [str(k) for k in named], "values": named}
        return cast("object", value)

    @field_validator("levels", mode="after")
    @classmethod
    def _ascending(cls, levels: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        if len(set(levels)) != len(levels):
            msg = "a level occurs twice"
            raise ValueError(msg)
        if len(levels) > MOST_LEVELS:
            msg = f"{len(levels)} levels are too many (at most {MOST_LEVELS})"
            raise ValueError(msg)
        if any(isinstance(x, str) and not (x.strip() and x.isprintable()) for x in levels):
            msg = "a level that is a word needs characters that show, on one line"
            raise ValueError(msg)
        if any(isinstance(x, str) and len(x) > LONGEST_WORD for x in levels):
            msg = f"a level is longer than {LONGEST_WORD} characters: give it a name, `levels: {{name: value}}`"
            raise ValueError(msg)
        if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in levels):
            return tuple(sorted(levels, key=lambda x: float(x)))
        return levels

    @model_validator(mode="after")
    def _each_name_has_a_value(self) -> Factor:
        if self.values is not None and set(self.values) != set(self.levels):
            msg = f"levels {list(self.levels)!r} and values {list(self.values)!r} are not the same names"
            raise ValueError(msg)
        return self

    @property
    def numeric(self) -> bool:
        """Whether levels have an order and a distance: numbers, no names, no truth values."""
        return all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in self.levels)

    def value(self, level: Scalar) -> JsonValue:
        """What a level stands for: itself, or the value behind its name."""
        return level if self.values is None else self.values[str(level)]


class FactorRange(Section):
    """Levels by their ends: ``{range: [1, 64], scale: log2}``."""

    range: tuple[int, int]
    scale: Literal["log2", "linear"] = "log2"
    step: int = Field(default=1, ge=1)
    """Distance of two levels of a linear scale."""

    @model_validator(mode="after")
    def _in_order(self) -> FactorRange:
        low, high = self.range
        if not 1 <= low < high:
            msg = "a range needs two whole numbers, the smaller (at least 1) first"
            raise ValueError(msg)
        count = (high // low).bit_length() if self.scale == "log2" else (high - low) // self.step
        if count > MOST_LEVELS:
            msg = f"that range has more than {MOST_LEVELS} levels"
            raise ValueError(msg)
        return self

    def levels(self) -> tuple[int, ...]:
        """Every level, both ends included: doublings of the lower end, or steps."""
        low, high = self.range
        found = [low]
        while found[-1] < high:
            found.append(
                min(high, found[-1] * 2 if self.scale == "log2" else found[-1] + self.step)
            )
        return tuple(found)


class Metric(Section):
    """The primary metric."""

    name: Literal["held_out_reward"] = "held_out_reward"
    direction: Direction = Direction.MAXIMIZE
    items: int = Field(default=300, ge=10, le=5000)
    """Held-out items of one evaluation."""
    measure: Literal["gain", "final"] = "gain"
    """What one run contributes: final minus version 0, or the final value alone (for factors that change version 0 too)."""


class Criterion(Section):
    """When a cell trains, and how sure a comparison has to be.

    On fresh seeds, the lower bound of the t interval of its gain lies above ``min_gain``, and the one-sided p, Holm-adjusted
    over every confirmatory test of the campaign, is below ``1 - confidence`` (``a3r.report.analysis`` decides).
    """

    min_gain: float = Field(default=0.05, ge=0.0, lt=1.0)
    """Of the metric, final minus version 0."""
    confidence: float = Field(default=0.95, gt=0.5, le=0.99999)
    """Family-wise, over every confirmatory test of the campaign."""
    rivals: int = Field(default=4, ge=1, le=50)
    """best and comparison: levels that are repeated on fresh seeds besides the leader or the baseline, at most, a condition."""


class Seeds(Section):
    """Replicates of a cell by stage."""

    coarse: int = Field(default=2, ge=1, le=MOST_SEEDS)
    refine: int = Field(default=2, ge=1, le=MOST_SEEDS)
    replicate: int = Field(default=4, ge=2, le=MOST_SEEDS)
    """Fresh seeds, used by no earlier run of the cell."""
    first: int = Field(default=1, ge=0, lt=2**31)

    @property
    def first_fresh(self) -> int:
        """The first seed number that only replicate stages use."""
        return self.first + max(self.coarse, self.refine)


class Budget(Section):
    """Where the campaign ends though the question is open; the report then says so. None: no limit."""

    wall_clock_min: float | None = Field(default=None, gt=0)
    """Minutes of work, waiting for people left out."""
    max_stages: int = Field(default=6, ge=1, le=1000)
    max_runs: int | None = Field(default=None, ge=1, le=1_000_000)
    """Planned runs (blueprint x seed)."""
    gpu_hours: float | None = Field(default=None, gt=0)
    """Hours that attempts held a GPU, times the GPUs of each; a run without a GPU costs nothing of it. When they are used, nothing
    new begins and what is under way may end."""
    llm_usd: float | None = Field(default=None, gt=0)
    """The language model's calls, in USD, reserves of calls under way included."""
    llm_tokens: int | None = Field(default=None, gt=0)
    """Prompt and completion tokens together."""
    llm_calls: int | None = Field(default=None, gt=0)
    synthesis_share: float = Field(default=0.15, ge=0.0, le=0.9)
    """Part of each of the three limits above that only the report's interpretation may spend."""
