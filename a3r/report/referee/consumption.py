"""Rules on what a step consumed: the planned batch, fresh samples, episodes that were lost or that the guard touched."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from a3r.report.referee.verdict import Answer, Finding, Grade, Unchecked
from a3r.report.referee.view import RunView

BATCH_OFF = 0.1
"""Mean departure from the planned size, as a share of it, above which the label is wrong."""
LOST_SHARE = 0.25
GUARDED_SHARE = 0.25
FIXED_SIZE = ("C1", "C2", "C3")
"""Policies under which a step has a planned size; under C4 and C5 the clients agree on it."""
_LOST = ("episode_aborted", "episode_expired")


def batch_size(view: RunView) -> Answer:
    """Steps consumed another batch than the blueprint says.

    Invalid when the size is under study, because the run is then filed under a level that it did not have. Under C3 a shortage
    comes from rewards that are all equal, which is an outcome, so there it is suspect only.
    """
    policy, tasks, repeat = (view.planned("batch", k) for k in ("policy", "tasks", "repeat"))
    if policy not in FIXED_SIZE or not tasks or not repeat:
        return Unchecked("the blueprint plans no fixed batch size")
    groups, episodes = view.series("groups"), view.series("episodes")
    by_groups = policy != "C1" and bool(groups)
    seen = groups if by_groups else episodes
    if not seen:
        return Unchecked("no step recorded what it consumed")
    wanted = float(tasks if by_groups else tasks * repeat)
    off = fmean(abs(v - wanted) for v in seen) / wanted
    wrong = sum(v != wanted for v in seen)
    if not wrong:
        return None
    fatal = view.batch_under_study and policy != "C3"
    grade = Grade.NOTE if off < BATCH_OFF else Grade.INVALID if fatal else Grade.SUSPECT
    unit = "groups" if by_groups else "episodes"
    return Finding(
        rule="batch_size",
        grade=grade,
        text=f"{wrong} of {len(seen)} steps did not consume the planned {wanted:g} {unit} (mean {fmean(seen):.2f})",
        numbers={"planned": wanted, "mean": fmean(seen), "wrong": wrong, "steps": len(seen)},
    )


def staleness(view: RunView) -> Answer:
    """Steps trained on samples of older weights than the blueprint allows (synchronous: of any older ones)."""
    values = view.series("staleness_max")
    if not values:
        return Unchecked("no step recorded the age of its samples")
    allowed = 0 if view.synchronous else view.planned("asynchronous", "max_staleness") or 0
    stale = sum(v > allowed for v in values)
    if not stale:
        return None
    return Finding(
        rule="staleness",
        grade=Grade.INVALID,
        text=f"{stale} of {len(values)} steps trained on samples up to {max(values):g} versions old; {allowed} were allowed",
        numbers={"stale": stale, "oldest": max(values), "allowed": allowed, "steps": len(values)},
    )


def lost_episodes(view: RunView) -> Answer:
    """Many episodes were aborted or expired: what is left may be the easy part of the task."""
    if not any(s.episodes_dropped for s in view.steps) and not view.series("groups"):
        return Unchecked("no step recorded what was dropped")
    dropped = sum((Counter(s.episodes_dropped) for s in view.steps), Counter[str]())
    lost, kept = sum(dropped[k] for k in _LOST), sum(view.series("episodes"))
    if not lost or lost < LOST_SHARE * (lost + kept):
        return None
    return Finding(
        rule="lost_episodes",
        grade=Grade.SUSPECT,
        text=f"{lost} episodes were aborted or expired and {kept:g} were consumed",
        numbers={"lost": lost, "consumed": kept},
    )


def guarded_episodes(view: RunView) -> Answer:
    """The swarm's episode guard touched many episodes: their rewards or losses are not what the environment gave."""
    found = sum((Counter(s.guard) for s in view.steps), Counter[str]())
    kept = sum(view.series("episodes"))
    touched = sum(n for rule, n in found.items() if not rule.endswith(":count"))
    if not touched or touched < GUARDED_SHARE * kept:
        return None
    return Finding(
        rule="guarded_episodes",
        grade=Grade.SUSPECT,
        text=f"the episode guard spoke {touched} times over {kept:g} consumed episodes",
        numbers={"touched": touched, "consumed": kept},
    )
