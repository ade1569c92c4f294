"""What a language model says it read in a goal: front matter, and for each key the goal's own words or an open assumption."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class ReadPart(BaseModel):
    """A frozen part; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(ReadPart):
    """Where the goal says it."""

    key: str
    """``question``, ``model``, ``factors.batch_size``, ``settings.steps``, ``budget.max_runs`` ..."""
    quote: str = Field(min_length=3, max_length=600)
    """Copied from the goal, word for word."""


class Assumption(ReadPart):
    """Something that the goal leaves open and that was filled in."""

    key: str
    because: str = Field(min_length=3, max_length=300)


class Reading(ReadPart):
    """The reply that is asked for."""

    front_matter: dict[str, JsonValue]
    """Keys of a goal's front matter, without those that code fills in."""
    sources: tuple[Source, ...]
    """One for each key that the goal states."""
    assumptions: tuple[Assumption, ...] = ()
    """One for each key that it leaves open; only ``task`` and levels of factors may be assumed."""


class Understanding(BaseModel):
    """A goal as it was understood; what ``campaign check`` shows and a campaign is frozen on."""

    model_config = ConfigDict(frozen=True)

    goal_spec: dict[str, Any]
    """``a3r.leader.goal.GoalSpec`` as JSON."""
    sources: tuple[Source, ...]
    assumptions: tuple[Assumption, ...]
    in_words: tuple[str, ...] = ()
    """Constraints that no setting carries out: they bind the client's writer, and the report tells of each."""
    missing: tuple[str, ...] = ()
    """What a person must put right (paths that are not there); a campaign waits for it."""
    model: str = ""
    """Who read it."""
