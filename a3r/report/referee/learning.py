"""Rules on the update itself: entropy, KL, gradients, numbers that are not finite, sampler against trainer, weights that stay.

All of them look at how training came out, so none calls a run invalid. Levels are those at which people who train language
models stop and look (entropy collapse: Cui et al. 2025, arXiv 2505.22617; KL estimator k3: Schulman 2020); the corpus in
``a3r.testing.faults`` measures how well they tell faults from clean runs.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from a3r.report.referee.curves import SHORTEST, ends
from a3r.report.referee.verdict import Answer, Finding, Grade, Unchecked
from a3r.report.referee.view import RunView, known_fingerprint

ENTROPY_LEFT = 0.1
"""Share of its early entropy that a run must keep."""
ENTROPY_FLOOR = 0.1
"""Nats a token; above it sampling still explores, whatever it began with."""
ENTROPY_GROWN = 2.0
ENTROPY_ADDED = 0.5
"""Nats a token."""
KL_HIGH = 1.0
"""Nats a token towards the model that training began with, median of the last third."""
GRADIENT_GROWN = 20.0
GRADIENT_SPIKE = 50.0
"""Times the run's own median."""
SPIKES_SHARE = 0.1
NO_GRADIENT = 1e-8
GAP_HIGH = 0.5
"""Log-probability; also the level of the swarm's own alarm."""
GAP_SHARE = 0.2
STUCK_SHARE = 0.5
NO_STEPS = Unchecked(f"fewer than {SHORTEST} steps with an update recorded it")


def entropy_collapse(view: RunView) -> Answer:
    """The policy stopped exploring before it had learned: near-zero entropy without a held-out gain or a solved task."""
    found = ends(view.series("entropy", updated=True))
    if found is None:
        return NO_STEPS
    if found.late >= ENTROPY_FLOOR or found.ratio >= ENTROPY_LEFT or view.improved or view.solved:
        return None
    return Finding(
        rule="entropy_collapse",
        grade=Grade.SUSPECT,
        text=f"entropy fell from {found.early:.3g} to {found.late:.3g} nats a token and the held-out reward did not rise",
        numbers={"early": found.early, "late": found.late},
    )


def entropy_growth(view: RunView) -> Answer:
    """The policy drifts towards noise: entropy at least doubles without a held-out gain."""
    found = ends(view.series("entropy", updated=True))
    if found is None:
        return NO_STEPS
    grown = found.ratio >= ENTROPY_GROWN and found.late - found.early >= ENTROPY_ADDED
    if not grown or view.improved:
        return None
    return Finding(
        rule="entropy_growth",
        grade=Grade.SUSPECT,
        text=f"entropy grew from {found.early:.3g} to {found.late:.3g} nats a token and the held-out reward did not rise",
        numbers={"early": found.early, "late": found.late},
    )


def kl_runaway(view: RunView) -> Answer:
    """The policy left the neighbourhood of the model that it began with. Single spikes of the estimator do not count."""
    values = view.series("kl", updated=True)
    found = ends(values)
    if found is None:
        return NO_STEPS
    if found.late < KL_HIGH:
        return None
    return Finding(
        rule="kl_runaway",
        grade=Grade.SUSPECT,
        text=f"KL to the first weights reached {found.late:.3g} nats a token",
        numbers={"late": found.late, "largest": max(values)},
    )


def gradient_explosion(view: RunView) -> Answer:
    """Gradient norms (before clipping) grow out of scale, or jump again and again."""
    values = view.series("grad_norm", updated=True)
    found = ends(values)
    if found is None:
        return NO_STEPS
    middle = median(values)
    spikes = sum(v > GRADIENT_SPIKE * middle for v in values) if middle else 0
    grown = found.early > NO_GRADIENT and found.ratio >= GRADIENT_GROWN
    if not grown and spikes < max(SPIKES_SHARE * len(values), 2):
        return None
    return Finding(
        rule="gradient_explosion",
        grade=Grade.SUSPECT,
        text=(
            f"the gradient norm went from {found.early:.3g} to {found.late:.3g},"
            f" with {spikes} of {len(values)} updates above {GRADIENT_SPIKE:g} times its median"
        ),
        numbers={
            "early": found.early,
            "late": found.late,
            "spikes": spikes,
            "updates": len(values),
        },
    )


def gradient_vanished(view: RunView) -> Answer:
    """Updates that were counted as updates and had no gradient."""
    values = view.series("grad_norm", updated=True)
    if len(values) < SHORTEST:
        return NO_STEPS
    empty = sum(v < NO_GRADIENT for v in values)
    if empty < STUCK_SHARE * len(values):
        return None
    return Finding(
        rule="gradient_vanished",
        grade=Grade.SUSPECT,
        text=f"{empty} of {len(values)} updates had no gradient",
        numbers={"empty": empty, "updates": len(values)},
    )


def not_finite(view: RunView) -> Answer:
    """Updates that were undone, or whose loss or gradient is not a number (recorded as missing, never as 0)."""
    if not view.steps:
        return Unchecked("no step was recorded")
    undone = sum(bool(s.rolled_back) for s in view.steps)
    lost = 0
    for name in ("loss", "grad_norm"):
        # A column that no step has was not recorded; one that single updates lack was not a number there.
        known = len(view.series(name, updated=True))
        lost = max(lost, view.updates - known if known else 0)
    if not undone and not lost:
        return None
    return Finding(
        rule="not_finite",
        grade=Grade.SUSPECT,
        text=f"{undone} of {len(view.steps)} updates were undone and {lost} had a loss or gradient that is not a number",
        numbers={"undone": undone, "lost": lost, "steps": len(view.steps)},
    )


def sampler_gap(view: RunView) -> Answer:
    """Trainer and sampler disagree on the tokens of their own weights: they do not run one model."""
    values = view.series("logprob_gap_max", updated=True)
    if len(values) < SHORTEST:
        return NO_STEPS
    if not view.synchronous:
        return Unchecked("asynchronous training: samples are of older weights by design")
    wide = sum(v > GAP_HIGH for v in values)
    if wide < max(GAP_SHARE * len(values), 2):
        return None
    return Finding(
        rule="sampler_gap",
        grade=Grade.SUSPECT,
        text=f"trainer and sampler differ by more than {GAP_HIGH:g} in a log-probability in {wide} of {len(values)} updates",
        numbers={"wide": wide, "updates": len(values), "largest": max(values)},
    )


def weights_stuck(view: RunView) -> Answer:
    """Updates after which the weights are what they were: the step is lost in rounding, or was not applied."""
    prints = [(known_fingerprint(s.fingerprint), bool(s.updated)) for s in view.steps]
    initial = view.rounds.get("initial")
    before = known_fingerprint(initial.fingerprint) if initial else ""
    pairs = [(a, b) for (a, _), (b, up) in pairwise([(before, False), *prints]) if up and a and b]
    if len(pairs) < SHORTEST:
        return NO_STEPS
    stuck = sum(a == b for a, b in pairs)
    if stuck < STUCK_SHARE * len(pairs):
        return None
    return Finding(
        rule="weights_stuck",
        grade=Grade.SUSPECT,
        text=f"{stuck} of {len(pairs)} updates left the weights as they were",
        numbers={"stuck": stuck, "updates": len(pairs)},
    )
