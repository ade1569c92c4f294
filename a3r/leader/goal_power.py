"""What the planned fresh seeds can tell apart, said before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from a3r.leader.goal import GoalSpec

SPREADS = (0.03, 0.1)
"""Standard deviations between seeds (of paired differences: of the differences) that are usual here."""


@dataclass(frozen=True)
class Resolution:
    """The sentences, and whether even the quieter of the usual spreads lets the smallest effect be shown."""

    text: str
    resolvable: bool


def family_planned(spec: GoalSpec) -> int:
    """Tests that share alpha when nothing has to be repeated: two directions each, and equivalence when it is asked."""
    conditions, levels = len(spec.conditions), len(spec.levels)
    if spec.question.asks_minimum:
        return 2 * 2 * conditions  # the claimed level and the one below it
    tests = 2 if spec.smallest_effect is None else 3
    repeated = min(levels, 1 + spec.criterion.rivals)
    count = {
        "best": conditions * repeated * (repeated - 1) // 2,
        "comparison": conditions * (repeated - 1),
        "interaction": conditions - 1,
    }[spec.question.kind]
    return max(1, tests * count)


def resolution(spec: GoalSpec) -> Resolution:
    """What can be confirmed at the usual spreads, how likely the smallest effect is shown, and what a permutation test could."""
    from a3r.leader.resolution import alpha_of, effect_of  # noqa: PLC0415 - scipy is heavy
    from a3r.report.family import share  # noqa: PLC0415
    from a3r.stats.power import design_note  # noqa: PLC0415

    minimum = spec.question.asks_minimum
    n, family, alpha, effect = (
        spec.seeds.replicate,
        family_planned(spec),
        round(alpha_of(spec) * share(1), 12),
        effect_of(spec),
    )
    notes = [
        design_note(
            design="threshold" if minimum else "paired",
            n=n,
            family=family,
            alpha=alpha,
            sd=sd,
            effect=effect,
        )
        for sd in SPREADS
    ]
    text = (
        f"With {n} fresh seeds and {family} confirmatory tests, {_confirmed_from(minimum, n, alpha, family)} "
        "(standard deviation)."
    )
    chances = " and ".join(_percent(note.power or 0.0) for note in notes)
    excess = f"{effect:g} over the criterion" if minimum else f"{effect:g}"
    text += f" A true effect of {excess} is then shown with a chance of {chances}."
    if not notes[0].permutation_reaches:
        text += (
            f" A test by permutation alone could reach p = {notes[0].permutation_p:.3g} at best and would need "
            f"{notes[0].level:.2g}: what is confirmed rests on Student's t."
        )
    return Resolution(text, notes[0].resolvable)


def _confirmed_from(minimum: bool, n: int, alpha: float, family: int) -> str:
    """From which size on something counts as confirmed, at each of the usual spreads that allow it."""
    from a3r.stats.tests import smallest_resolvable_gain  # noqa: PLC0415 - scipy is heavy

    what, spread, over = (
        ("a mean gain", "seeds spread", " above the criterion")
        if minimum
        else ("a difference", "paired differences spread", "")
    )
    smallest = [smallest_resolvable_gain(sd, n, alpha, family) for sd in SPREADS]
    parts = [
        f"{gain:.2f}{over} if {spread} by {sd:g}"
        for gain, sd in zip(smallest, SPREADS, strict=True)
        if gain is not None
    ]
    return f"{what} counts as confirmed from {' and '.join(parts)}"


def _percent(power: float) -> str:
    return "over 99 %" if power > 0.99 else f"{100 * power:.0f} %"
