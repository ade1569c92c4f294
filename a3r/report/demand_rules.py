"""Demands in words that a rule can read: ``at least 3 seeds per level``, ``Max steps: 12``, ``at most 24 runs``, ``Model: ...``.

A demand is taken apart at commas, semicolons and full stops. Each part is read by one rule, word for word or not at all, and held
against what was run. The demand is kept only when every part is; one part that nothing reads leaves the whole of it to a reader.
Rules read digits only, and never guess what a word means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from a3r.core.types import RunState
from a3r.report.costs import Costs
from a3r.report.numbers import level_text, scalar_text
from a3r.report.records import BlueprintRecord, Records, Scalar

NUMBER = r"(?P<n>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
BOUND = r"(?:(?P<bound>at least|at most|max(?:imum|\.)?|min(?:imum|\.)?|exactly|no more than|up to)\s+)?"
LEAST, MOST = ("at least", "min"), ("at most", "max", "no more than", "up to")
HOURS_MIN = 60.0


@dataclass(frozen=True)
class Told:
    """Of one part. ``why`` may hold outside words."""

    kept: bool | None
    """None = a rule reads it, and the records do not say."""
    why: str


@dataclass(frozen=True)
class Facts:
    """What rules look at."""

    records: Records
    spec: dict[str, Any]
    costs: Costs

    def succeeded(self, blueprint: BlueprintRecord) -> set[int]:
        """Seeds of the blueprint that have a result."""
        runs = self.records.runs
        mine = (r for r in runs if r.blueprint_id == blueprint.id and r.state == RunState.SUCCEEDED)
        return {r.seed for r in mine}


Rule = Callable[[Facts, "re.Match[str]"], Told]


def demand_told(text: str, facts: Facts) -> Told | None:
    """What became of a demand; None when some part of it is read by no rule and no other part was broken."""
    parts = list(_parts(text))
    found = [_read(part, facts) for part in parts]
    broken = next((told for told in found if told is not None and told.kept is False), None)
    if broken is not None:
        return broken
    read = [told for told in found if told is not None]
    if not read or len(read) < len(found):
        return None
    unknown = next((told for told in read if told.kept is None), None)
    return unknown or Told(True, "; ".join(dict.fromkeys(told.why for told in read)))


def _parts(text: str) -> Iterator[str]:
    """Of ``Budget: at most 24 runs, 6 stages.`` the two limits; a heading before the first colon is part of what it heads."""
    bare = re.sub(r"^\s*(?:budget|constraints?)\s*:\s*", "", text, flags=re.IGNORECASE)
    bound = ""
    for part in re.split(r"[;,]\s+|\.\s+|\.$|\s+and\s+", bare.strip()):
        words = " ".join(part.split())
        if not words:
            continue
        named = re.match(r"(at most|at least)\s", words, re.IGNORECASE)
        bound = named[1] if named else bound
        # "at most 24 runs, 6 stages": the bound goes on for parts that begin with a number.
        yield f"{bound} {words}" if bound and words[0].isdigit() else words


def _read(part: str, facts: Facts) -> Told | None:
    for pattern, rule in _RULES:
        found = pattern.fullmatch(part)
        if found:
            return rule(facts, found)
    return _setting(part, facts)


def _against(found: re.Match[str], value: float | None, what: str) -> Told:
    """``what`` names the value; without a bound the number itself is meant."""
    wanted, bound = float(found["n"]), (found["bound"] or "").lower().rstrip(".")
    if value is None:
        return Told(None, f"not every attempt reported its {what}")
    said = level_text(value) if float(value).is_integer() else f"{value:.4g}"
    return Told(_holds(value, bound, wanted), f"{what}: {said}")


def _holds(value: float, bound: str, wanted: float) -> bool:
    if bound.startswith(LEAST):
        return value >= wanted
    return value <= wanted if bound.startswith(MOST) else value == wanted


# --- rules -----------------------------------------------------------------------------------------------------


def _seeds(facts: Facts, found: re.Match[str]) -> Told:
    """Results on different seeds in every cell that was planned, over all stages (or the confirming ones: ``fresh``)."""
    confirming = (found["fresh"] or "").strip().lower() == "fresh"
    cells: dict[str, set[int]] = {}
    for blueprint in facts.records.blueprints:
        if confirming and facts.records.stage(blueprint.stage_id).kind != "replicate":
            continue
        name = ", ".join(f"{k} {scalar_text(v)}" for k, v in sorted(blueprint.factors.items()))
        cells.setdefault(name, set()).update(facts.succeeded(blueprint))
    if not cells:
        return Told(False, "no such run was planned")
    bound = (found["bound"] or LEAST[0]).lower()
    extreme = max if bound.startswith(MOST) else min
    name, seeds = extreme(cells.items(), key=lambda cell: len(cell[1]))
    told = f"seeds with a result: {len(seeds)} at {name}, of {len(cells)} cells"
    return Told(_holds(len(seeds), bound, float(found["n"])), told)


def _runs(facts: Facts, found: re.Match[str]) -> Told:
    """At most: of what was planned. At least: of what has a result."""
    if found["bound"].lower().startswith(LEAST):
        done = sum(r.state == RunState.SUCCEEDED for r in facts.records.runs)
        return _against(found, done, "runs with a result")
    return _against(found, sum(len(b.seeds) for b in facts.records.blueprints), "planned runs")


def _stages(facts: Facts, found: re.Match[str]) -> Told:
    return _against(found, len(facts.records.stages), "stages")


def _minutes(facts: Facts, found: re.Match[str]) -> Told:
    wall = facts.costs.wall_min
    hours = found["unit"].lower().startswith("h")
    value = wall / HOURS_MIN if hours and wall is not None else wall
    return _against(
        found, value, f"{'hours' if hours else 'minutes'} from start to end, waiting included"
    )


def _gpu_hours(facts: Facts, found: re.Match[str]) -> Told:
    return _against(found, facts.costs.gpu_hours, "GPU hours")


def _usd(facts: Facts, found: re.Match[str]) -> Told:
    return _against(found, facts.costs.llm_usd, "USD for the language model")


def _items(facts: Facts, found: re.Match[str]) -> Told:
    planned = {float(e.planned) for e in facts.records.evals}
    if not planned:
        return Told(False, "no round was played")
    odd = next((x for x in planned if not _against(found, x, "").kept), min(planned))
    return _against(found, odd, "held-out items of a round")


def _steps(facts: Facts, found: re.Match[str]) -> Told:
    steps = {float(b.stop_at_step) for b in facts.records.blueprints if b.stop_at_step is not None}
    if not steps:
        return Told(None, "no blueprint names its steps")
    odd = next((x for x in steps if not _against(found, x, "").kept), max(steps))
    return _against(found, odd, "steps of a run")


def _confidence(facts: Facts, found: re.Match[str]) -> Told:
    criterion: dict[str, Any] = facts.spec.get("criterion") or {}
    return _against(found, criterion.get("confidence"), "confidence")


def _named(facts: Facts, found: re.Match[str]) -> Told:
    """The model, task or metric of every blueprint that was made, or the factor that it is."""
    what, wanted = found["what"].lower(), found["name"]
    if not facts.records.blueprints:
        return Told(False, "no blueprint was made")
    other = [x for b in facts.records.blueprints if (x := _name_in(b, what)) != wanted]
    why = f"{what} of the blueprints: {other[0] if other else wanted}"
    # A model may be written in more ways than one (a folder, a hub's name): only the same words are the same for sure.
    return Told(None if other and what == "model" else not other, why)


def _name_in(blueprint: BlueprintRecord, what: str) -> str:
    document = blueprint.document
    if what == "model":
        servers: list[dict[str, Any]] = document.get("servers") or [{}]
        return str(servers[0].get("train", {}).get("model", {}).get("path", ""))
    section: dict[str, Any] = document.get("evaluator" if what == "task" else "metric") or {}
    return str(section.get("task" if what == "task" else "name", ""))


def _rule(pattern: str, rule: Rule) -> tuple[re.Pattern[str], Rule]:
    return re.compile(pattern, re.IGNORECASE), rule


_CELL = (
    r"(?:per|a|for each|for every|each|in each|in every)\s+(?:cell|level|condition|configuration)"
)
_RULES = (
    _rule(rf"{BOUND}{NUMBER}\s+(?P<fresh>fresh\s+)?seeds?\s+{_CELL}", _seeds),
    _rule(rf"{BOUND}{NUMBER}\s+(?P<fresh>fresh)\s+seeds?(?:\s+to confirm)?", _seeds),
    _rule(rf"(?P<bound>at least|at most|no more than)\s+{NUMBER}\s+(?:planned\s+)?runs?", _runs),
    _rule(rf"{BOUND}{NUMBER}\s+stages?", _stages),
    _rule(rf"(?P<bound>at most|no more than)\s+{NUMBER}\s+(?P<unit>minutes?|hours?)", _minutes),
    _rule(rf"(?P<bound>at most|no more than)\s+{NUMBER}\s+GPU[ -]hours?", _gpu_hours),
    _rule(rf"(?P<bound>at most|no more than)\s+{NUMBER}\s+USD for the language model", _usd),
    _rule(rf"(?:evaluate on\s+)?{BOUND}{NUMBER}\s+held-out items", _items),
    _rule(rf"(?P<bound>max(?:imum)?)\s+steps\s*[:=]?\s*{NUMBER}", _steps),
    _rule(rf"{BOUND}{NUMBER}\s+steps(?:\s+per run| a run)?", _steps),
    _rule(rf"(?P<bound>)confidence\s*[:=]?\s*{NUMBER}", _confidence),
    _rule(r"(?P<what>model|task|metric)\s*[:=]\s*`?(?P<name>\S+?)`?", _named),
)


# --- settings and levels by their own names --------------------------------------------------------------------


def _setting(part: str, facts: Facts) -> Told | None:
    """``group_size 4``: a setting of the goal, in every blueprint; or a level of a factor that has a result (``batch_size 8``)."""
    found = re.fullmatch(r"(?P<name>[A-Za-z_][\w.]*)\s*[:=]?\s+`?(?P<value>\S+?)`?", part)
    if found is None:
        return None
    name, value = found["name"], found["value"]
    if name in (facts.spec.get("factors") or {}):
        with_result = [b for b in facts.records.blueprints if _equal(b.factors.get(name), value)]
        ran = any(facts.succeeded(b) for b in with_result)
        return Told(ran, f"{name} {value} has {'a' if ran else 'no'} result")
    if name not in (facts.spec.get("settings") or {}):
        return None
    fixed: list[dict[str, Scalar]] = [
        b.document.get("fixed") or {} for b in facts.records.blueprints
    ]
    held = [values.get(name) for values in fixed]
    other = [x for x in held if not _equal(x, value)]
    if not held:
        return Told(False, "no blueprint was made")
    return Told(not other, f"{name} in the blueprints: {scalar_text(other[0]) if other else value}")


def _equal(value: Scalar, text: str) -> bool:
    if isinstance(value, bool) or value is None:
        return str(value).lower() == text.lower()
    if isinstance(value, str):
        return value == text
    try:
        return float(text) == float(value)
    except ValueError:
        return False
