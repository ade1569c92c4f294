"""Rules on rewards and answers: hacking, collapse, plateau, lengths, truncation, groups that teach nothing.

They look at how the run came out, so none calls it invalid.
"""

from __future__ import annotations

import math
from statistics import fmean

from a3r.report.referee.curves import SHORTEST, change, ends, scatter, smoothed
from a3r.report.referee.verdict import Answer, Finding, Grade, Unchecked
from a3r.report.referee.view import RunView

TRAIN_RISE = 0.1
"""Of the range of rewards: a smaller rise of the training reward is no promise."""
KEPT_RISE = 0.3
"""Share of the training reward's rise that the held-out reward must show."""
ERRORS = 2.5
"""Standard errors that a change, or its shortfall, must exceed."""
PEAK_ERRORS = 4.0
"""The same for a fall from the highest of many means, which noise alone lifts."""
COLLAPSE = 0.5
"""Share of the rise to its peak that a run must lose."""
COLLAPSE_RANGE = 0.15
LENGTH_RATIO = 3.0
TRUNCATED = 0.5
TRUNCATED_ADDED = 0.3
ZERO_SHARE = 0.9
FLAT = 0.02
"""Of the range of rewards."""
NO_STEPS = Unchecked(f"fewer than {SHORTEST} steps recorded it")


def reward_hacking(view: RunView) -> Answer:
    """The training reward rises and the held-out reward does not follow: the reward is gamed, or training data is learned by heart."""
    moved = change(view.series("reward_mean"))
    if moved is None:
        return NO_STEPS
    held = view.held_out
    if held is None:
        return Unchecked("no item was scored in both rounds")
    rises = moved.rise >= TRAIN_RISE * view.reward_range > 0 and moved.clear(ERRORS)
    short = moved.rise - held.gain > ERRORS * math.hypot(moved.error, held.error)
    if not rises or not short or held.gain >= KEPT_RISE * moved.rise:
        return None
    verb = "fell" if held.declined else "moved"
    return Finding(
        rule="reward_hacking",
        grade=Grade.SUSPECT,
        text=f"the training reward rose by {moved.rise:.3f} while the held-out reward {verb} by {held.gain:+.3f}",
        numbers={"train_rise": moved.rise, "held_out": held.gain, "held_out_error": held.error},
    )


def reward_collapse(view: RunView) -> Answer:
    """The training reward rose, and then lost most of what it had won."""
    values = view.series("reward_mean")
    width = max(len(values) // 8, 3)
    means = smoothed(values, width)
    if len(means) < SHORTEST:
        return NO_STEPS
    top = max(range(len(means)), key=means.__getitem__)
    rise, fall = means[top] - means[0], means[top] - means[-1]
    error = scatter(values) * (2 / width) ** 0.5
    enough = fall >= COLLAPSE_RANGE * view.reward_range > 0 and fall > PEAK_ERRORS * error
    if not enough or fall < COLLAPSE * max(rise, 0.0) or rise <= error:
        return None
    step = view.steps[min(top + width, len(view.steps)) - 1].step
    return Finding(
        rule="reward_collapse",
        grade=Grade.SUSPECT,
        text=f"the training reward fell from {means[top]:.3f} at step {step} to {means[-1]:.3f} at the end",
        numbers={"peak": means[top], "end": means[-1], "step": step},
    )


def reward_plateau(view: RunView) -> Answer:
    """The training reward stood still after its first third, below the best reward: said, not held against the run."""
    values = view.series("reward_mean")
    rest = values[len(values) // 3 :]
    moved = change(rest)
    if moved is None:
        return NO_STEPS
    if view.solved or not view.reward_range or abs(moved.rise) > FLAT * view.reward_range:
        return None
    return Finding(
        rule="reward_plateau",
        grade=Grade.NOTE,
        text=f"the training reward stood still at {fmean(rest):.3f} after its first third",
        numbers={"level": fmean(rest), "rise": moved.rise},
    )


def length_drift(view: RunView) -> Answer:
    """Answers grow or shrink threefold and the held-out reward gains nothing from it."""
    found = ends(view.series("response_tokens_mean"))
    if found is None:
        return NO_STEPS
    if 1 / LENGTH_RATIO < found.ratio < LENGTH_RATIO or view.improved:
        return None
    return Finding(
        rule="length_drift",
        grade=Grade.SUSPECT,
        text=f"answers went from {found.early:.1f} to {found.late:.1f} tokens and the held-out reward did not rise",
        numbers={"early": found.early, "late": found.late},
    )


def truncation(view: RunView) -> Answer:
    """More and more answers are cut off at the limit: their rewards are of half an answer."""
    found = ends(view.series("truncated_share"))
    if found is None:
        return NO_STEPS
    if found.late < TRUNCATED or found.late - found.early < TRUNCATED_ADDED or view.improved:
        return None
    return Finding(
        rule="truncation",
        grade=Grade.SUSPECT,
        text=f"the share of answers cut off at the limit grew from {found.early:.0%} to {found.late:.0%}",
        numbers={"early": found.early, "late": found.late},
    )


def zero_variance(view: RunView) -> Answer:
    """Nearly every group had equal rewards, so that hardly anything could train; a task that is solved does that by right."""
    values = view.series("zero_advantage_share")
    if len(values) < SHORTEST:
        return NO_STEPS
    share = fmean(values)
    if share < ZERO_SHARE or view.solved:
        return None
    return Finding(
        rule="zero_variance",
        grade=Grade.SUSPECT,
        text=f"{share:.0%} of the consumed episodes were in groups with equal rewards ({view.updates} of {len(view.steps)} steps moved the weights)",
        numbers={"share": share, "updates": view.updates, "steps": len(view.steps)},
    )
