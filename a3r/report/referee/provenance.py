"""Rules on what the run is made of: weights, evaluator, seed, replicates, items. They do not look at any result, so they may exclude."""

from __future__ import annotations

from a3r.report.records import EvalRecord
from a3r.report.referee.verdict import Answer, Finding, Grade, Unchecked
from a3r.report.referee.view import RunView, known_fingerprint

OVERLAP_SUSPECT = 0.01
OVERLAP_INVALID = 0.05
"""Share of the consumed groups whose prompt an evaluation shows too."""


def base_weights(view: RunView) -> Answer:
    """The run began with other weights than the blueprint names."""
    servers = view.blueprint.document.get("servers", [])
    planned = known_fingerprint(servers[0].get("model_fingerprint") if servers else "")
    initial = view.rounds.get("initial")
    seen = known_fingerprint(initial.fingerprint) if initial else ""
    if view.train.get("engine") == "toy" or not planned:
        return Unchecked("the blueprint names no weights")
    if not seen:
        return Unchecked("the initial round names no weights")
    if seen == planned:
        return None
    return _invalid("base_weights", f"it began with the weights {seen}, not {planned}")


def final_weights(view: RunView) -> Answer:
    """The final round was answered by other weights than the last step left (suspect: an interim round by others than its step's)."""
    after = {s.step: known_fingerprint(s.fingerprint) for s in view.steps}
    looked = False
    for name, found in view.rounds.items():
        expected, seen = after.get(found.step, ""), known_fingerprint(found.fingerprint)
        if not expected or not seen:
            continue
        looked = looked or name == "final"
        if expected != seen:
            text = f"the round of step {found.step} was answered by the weights {seen}; that step left {expected}"
            grade = Grade.INVALID if name == "final" else Grade.SUSPECT
            return Finding(
                rule="final_weights", grade=grade, text=text, numbers={"step": found.step}
            )
    return None if looked else Unchecked("the final round or the last step names no weights")


def evaluator_seal(view: RunView) -> Answer:
    """A round used other items or another scorer than planned, or the two rounds that are compared differ in their items."""
    planned = view.blueprint.document["evaluator"]
    wanted = (planned["item_set_hash"], planned["source_hash"])
    for found in view.rounds.values():
        if (found.item_set_hash, found.evaluator_hash) != wanted:
            return _invalid(
                "evaluator_seal",
                f"the round of step {found.step} used other items or another scorer than planned",
            )
        if found.attempt_id != view.attempt.id:
            return _invalid(
                "evaluator_seal", f"the round of step {found.step} is of another attempt"
            )
    initial, final = (view.rounds.get(name) for name in ("initial", "final"))
    if initial is None or final is None:
        return Unchecked("there are not both rounds")
    apart = len(_ids(initial) ^ _ids(final))
    if not apart:
        return None
    return _invalid(
        "evaluator_seal", f"{apart} items are in one of the two rounds only", items=apart
    )


def seed_proven(view: RunView) -> Answer:
    """The run's own record does not state the planned seed."""
    seed = view.attempt.summary.get("seed")
    if seed == view.run.seed and isinstance(seed, int):
        return None
    said = f"{seed}" if isinstance(seed, int) else "none"
    return _invalid(
        "seed_proven", f"seed {view.run.seed} was planned, the run's own record states {said}"
    )


def replicates(view: RunView) -> Answer:
    """Another seed of the cell left exactly the same weights: the seed had no effect, and a copy is no replicate."""
    if not view.steps or not known_fingerprint(view.steps[-1].fingerprint) or not view.updates:
        return Unchecked("no update left weights that are named")
    if not view.twins:
        return None
    return _invalid(
        "replicates",
        f"its weights after the last step equal those of {len(view.twins)} earlier run(s) of the cell with another seed",
        copies=len(view.twins),
    )


def overlap(view: RunView) -> Answer:
    """Training consumed prompts that the evaluation shows."""
    shared, groups = view.series("eval_overlap"), sum(view.series("groups"))
    if not shared or not groups:
        return Unchecked("no step recorded whether its prompts are an evaluation's")
    share = sum(shared) / groups
    if not share:
        return None
    grade = Grade.NOTE
    if share >= OVERLAP_SUSPECT:
        grade = Grade.INVALID if share >= OVERLAP_INVALID else Grade.SUSPECT
    return Finding(
        rule="overlap",
        grade=grade,
        text=f"{sum(shared):g} of {groups:g} consumed groups had the prompt of a held-out item",
        numbers={"shared": sum(shared), "groups": groups},
    )


def _ids(found: EvalRecord) -> set[str]:
    return {i.item_id for i in found.items}


def _invalid(rule: str, text: str, **numbers: float) -> Finding:
    return Finding(rule=rule, grade=Grade.INVALID, text=text, numbers=numbers)
