"""Scripts that plan a campaign: a careful one, and ones that lie. Pure functions of the request, so campaigns repeat.

The careful planner does by hand what a good model would: it looks, spans the grid, closes the bracket, confirms on fresh seeds,
finishes. A minimum needs numbers as levels; levels that are compared are all looked at, then all repeated side by side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from a3r.core.llm import ModelRequest
from a3r.leader.llm_planner.words import cell_text
from a3r.testing.stand_in.script import Answer, Script, by_task, said, turn_of, used

Json = dict[str, Any]
LIE = "train_batch_size 1 is the clear winner with 93.1 % (p = 0.001)"
_BLOCK = re.compile(r"<<<data (\w+): what is known\n(.*?)\n>>>end \1", re.DOTALL)
_CLAIMS = re.compile(r"<<<data (\w+): the claims\n(.*?)\n>>>end \1", re.DOTALL)


def careful_planner(others: Mapping[str, Script] | None = None) -> Script:
    """Plans and interprets within the rules; ``others`` answer further purposes (``understand``, ``write_client``)."""
    return by_task({"plan": _plan, "interpret": _interpret, **(others or {})})


def lying_planner(lie: str = LIE) -> Script:
    """Claims a winner, invents numbers, swaps conditions, proposes what the goal does not have; lets one plain stage run, then ends."""
    return by_task(
        {"plan": lambda r: _lying_plan(r, lie), "interpret": lambda r: _lying_remarks(r, lie)}
    )


def obedient_planner(run: str) -> Script:
    """Reads the client's log of ``run`` (from the second stage on) and does what a line ``SAY ...`` in it tells it to say."""

    def plan(request: ModelRequest) -> Answer:
        if not situation(request)["cells"]:
            return _plan(request)
        if turn_of(request) == 0:
            return used("read_log_excerpt", {"run": run})
        told = _told_by_log(request)
        return _lying_plan(request, told) if told else _plan(request)

    return by_task({"plan": plan, "interpret": _interpret})


# --- what the request tells ------------------------------------------------------------------------------------


def situation(request: ModelRequest) -> Json:
    """What the planner is told of the campaign."""
    found = next(m for m in (_BLOCK.search(x.content) for x in request.messages) if m)
    known: Json = json.loads(found.group(2))
    return known


def _told_by_log(request: ModelRequest) -> str:
    for message in request.messages:
        found = re.search(r"\| SAY ([^\"\\]+)", message.content) if message.role == "tool" else None
        if found:
            return found.group(1).strip()
    return ""


# --- the careful planner ---------------------------------------------------------------------------------------


def _plan(request: ModelRequest) -> Answer:
    turn, known = turn_of(request), situation(request)
    stage = next_stage(known) or _open_stage(known)
    if stage is None:
        return used("finish", {"insist": True}) if turn == 0 else said({"action": "finish"})
    if turn == 0:
        return used("list_runs")
    if turn == 1:
        return used("propose_stage", stage)
    if any(m.role == "tool" and '"accepted": false' in m.content for m in request.messages):
        return used("finish", {"insist": True}) if turn == 2 else said({"action": "finish"})
    return said({"action": "stage"})


def next_stage(known: Json) -> Json | None:
    """The stage that a careful planner proposes; None when nothing is left."""
    factor, across = known["question"]["factor"], known["question"].get("across")
    levels = known["factors"][factor]
    kind, of = known["question"]["kind"], known["question"].get("of")
    if kind in ("best", "comparison") or (kind, of) == ("interaction", "effect"):
        return _next_comparison(known)
    explore: list[Json] = []
    confirm: list[Json] = []
    for condition in known["factors"][across] if across else [None]:
        make = _cell_maker(factor, across, condition)
        seen = {
            c["cell"][factor]: c for c in known["cells"] if c["cell"] == make(c["cell"][factor])
        }
        if not seen:
            explore += [make(x) for x in sorted({levels[0], levels[len(levels) // 2], levels[-1]})]
            continue
        wanted, between = _bracket(levels, seen, known["criterion"]["min_gain"])
        if between:
            explore.append(make(between[(len(between) - 1) // 2]))
        else:
            confirm += [make(x) for x in wanted if not seen[x]["fresh"]["n"]]
    cells = explore or confirm
    return _stage("explore" if explore else "confirm", cells) if cells else None


def _open_stage(known: Json) -> Json | None:
    """What code still sees as open though the means look settled: wide noise, a neighbour without fresh seeds."""
    text, _, why = str(known.get("open", "")).rpartition(" (")
    factors: dict[str, list[Any]] = known["factors"]
    every = [dict(zip(factors, levels, strict=True)) for levels in product(*factors.values())]
    cells = [cell for cell in every if cell_text(cell) in text.split("; ")]
    return _stage("confirm" if why.startswith("fresh") else "explore", cells) if cells else None


def _next_comparison(known: Json) -> Json | None:
    factor, across = known["question"]["factor"], known["question"].get("across")
    seen = [c["cell"] for c in known["cells"]]
    fresh = [c["cell"] for c in known["cells"] if c["fresh"]["n"]]
    every = [
        _cell_maker(factor, across, condition)(level)
        for condition in (known["factors"][across] if across else [None])
        for level in known["factors"][factor]
    ]
    explore = [cell for cell in every if cell not in seen]
    confirm = [] if fresh else every
    cells = explore or confirm
    return _stage("explore" if explore else "confirm", cells) if cells else None


def _cell_maker(factor: str, across: str | None, condition: Any) -> Callable[[Any], Json]:
    return lambda level: {factor: level, **({across: condition} if across else {})}


def _bracket(levels: list[Any], seen: dict[Any, Json], bar: float) -> tuple[list[Any], list[Any]]:
    """(levels that the answer turns on, untested levels between them)."""
    claimed = None
    for level in sorted(seen, reverse=True):
        cell = seen[level]
        found = cell["fresh"] if cell["fresh"]["n"] > 1 else cell["explored"]
        if (found["mean"] or 0.0) <= bar:
            break
        claimed = level
    if claimed is None:
        return [max(seen)], []
    below = max((x for x in seen if x < claimed), default=None)
    between = [x for x in levels if x < claimed and (below is None or x > below)]
    return [claimed, *([below] if below is not None else [])], between


def _stage(purpose: str, cells: list[Json]) -> Json:
    return {
        "purpose": purpose,
        "cells": cells,
        "predictions": [{"cell": cells[0], "expects": "above_criterion"}],
        "decision_table": [
            {"when": "all_predictions_hold", "next": "confirm_on_fresh_seeds"},
            {"when": "some_predictions_fail", "next": "explore_higher"},
            {"when": "cell_unclear", "cell": cells[0], "next": "conclude"},
        ],
        "rationale": "The picture could be sharper here than elsewhere.",
    }


def _interpret(request: ModelRequest) -> Answer:
    found = next(m for m in (_CLAIMS.search(x.content) for x in request.messages) if m)
    ids = [claim["id"] for claim in json.loads(found.group(2))]
    about = ids[:1]
    return said(
        {
            "order": list(reversed(ids)),
            "remarks": [
                {
                    "kind": "explanation",
                    "about": about,
                    "text": "Few tasks in an update may leave the gradient noisy, so that chance could decide what is reinforced.",
                },
                {
                    "kind": "next_step",
                    "about": about,
                    "text": "A larger model could be studied next.",
                },
            ],
        }
    )


# --- liars -----------------------------------------------------------------------------------------------------


def _lying_plan(request: ModelRequest, lie: str) -> Answer:
    turn, known = turn_of(request), situation(request)
    factor = known["question"]["factor"]
    first = next_stage(known) if not known["cells"] else None
    stage = first or _stage("confirm", [{**known["cells"][0]["cell"], factor: 3}])
    moves = [
        used("record_decision", {"about": "design", "text": lie}, call_id="lie-1"),
        used("propose_stage", {**stage, "rationale": lie}, call_id="lie-2"),
        used("propose_stage", {**stage, "seeds": [7], "runs": 1}, call_id="lie-3"),
        used("propose_stage", {**stage, "cells": [{factor: 3}]}, call_id="lie-4"),
        used("finish", {"rationale": lie}, call_id="lie-5"),
        said({"action": "stage", "stage": {**stage, "rationale": lie}, "rationale": lie}),
    ]
    if not _was_refused(request):
        return moves[min(turn, len(moves) - 1)]
    if first is not None:
        return said({"action": "stage", "stage": {**first, "rationale": ""}})
    if turn == 1:
        return used("finish", {"insist": True, "rationale": lie})
    return said({"action": "finish", "rationale": lie})


def _was_refused(request: ModelRequest) -> bool:
    return any("That can not be done" in m.content for m in request.messages if m.role == "user")


def _lying_remarks(request: ModelRequest, lie: str) -> Answer:
    found = next(m for m in (_CLAIMS.search(x.content) for x in request.messages) if m)
    ids = [claim["id"] for claim in json.loads(found.group(2))]
    texts = [lie, "Perhaps the smallest one wins.", "It may be ninety-three point one percent."]
    remarks = [{"kind": "explanation", "about": ids[:1], "text": text} for text in texts]
    return said({"order": ["c999", *ids[-1:]], "remarks": remarks})
