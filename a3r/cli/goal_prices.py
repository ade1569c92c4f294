"""Before a campaign starts: whether what its language models cost can be bounded in USD at all.

A model without a known price is never asked, because no budget could be kept; its fallbacks are. That must not be found out from
a bill, or from a study that another model planned. Prices are those of the settings here, as the daemon reads them when it starts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from a3r.core.errors import GoalError
from a3r.core.llm import LanguageModel
from a3r.leader.clients.remedy import uses_model
from a3r.leader.goal import GoalSpec
from a3r.leader.understanding.session import split_goal

HINT = (
    "Set A3R_LLM_PRICE to USD a million prompt and completion tokens, e.g. '3,15' ('0,0' for a model of your own); "
    "a daemon that runs must be started anew to see it ('a3r daemon stop')."
)


@dataclass(frozen=True)
class PriceFindings:
    """Sentences; both empty when every model has a price, or none is used."""

    mistakes: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])


def price_findings(
    limit_usd: float | None, model: LanguageModel, fallbacks: Sequence[LanguageModel] = ()
) -> PriceFindings:
    """What is wrong with the prices of the models that a goal with this ``budget.llm_usd`` would have asked.

    Refused is a limit in USD for a first model without a price; everything else is a warning.
    """
    unknown = [one.name for one in (model, *fallbacks) if one.price() is None]
    if model.name not in unknown:
        return PriceFindings(warnings=[_never_asked(name) for name in unknown])
    if limit_usd is not None:
        return PriceFindings(
            mistakes=[
                f"budget.llm_usd is {limit_usd:g}, but the price of the language model {model.name!r} is not known, so USD can not "
                "be bounded for it: set A3R_LLM_PRICE"
            ]
        )
    priced = [one.name for one in fallbacks if one.name not in unknown]
    instead = f"{priced[0]!r} is asked in its place" if priced else "the campaign will be blocked"
    return PriceFindings(warnings=[f"{_never_asked(name)}: {instead}" for name in unknown])


def _never_asked(name: str) -> str:
    return (
        f"the price of the language model {name!r} is not known (A3R_LLM_PRICE names one): USD can not be bounded for it, so it is "
        "never asked"
    )


def prices_of_goal(spec: GoalSpec, config: Path | None) -> PriceFindings:
    """Of a goal that was understood; empty when it lets no model be paid for."""
    return _here(spec.budget.llm_usd, config) if uses_model(spec) else PriceFindings()


def prices_of_prose(text: str, file: Path, config: Path | None) -> PriceFindings:
    """Of a goal that a model reads first: what its front matter says of the budget counts already."""
    given, _ = split_goal(text, file)
    budget: object = given.get("budget")
    limit = cast("dict[str, object]", budget).get("llm_usd") if isinstance(budget, dict) else None
    return _here(float(limit) if isinstance(limit, (int, float)) else None, config)


def _here(limit_usd: float | None, config: Path | None) -> PriceFindings:
    """With the models of the settings; litellm is asked for a price only where none is given."""
    from a3r.cli.daemon.language_model import models_of
    from a3r.core.settings import resolve_settings

    model, fallbacks = models_of(resolve_settings(env=os.environ, file=config), os.environ)
    return PriceFindings() if model is None else price_findings(limit_usd, model, fallbacks)


def refuse_unpriced(found: PriceFindings) -> None:
    """Raise GoalError (exit code 2) for the first mistake; nothing for none."""
    if found.mistakes:
        raise GoalError(found.mistakes[0], hint=HINT, mistakes=found.mistakes)
