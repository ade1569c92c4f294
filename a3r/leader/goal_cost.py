"""What a goal would cost: bounds of runs, training episodes and GPU hours, and the language model's share."""

from __future__ import annotations

from pathlib import Path

from a3r.leader.contrast_steps import first_levels
from a3r.leader.goal import GoalSpec
from a3r.leader.sweep_steps import coarse_levels
from a3r.leader.training import cell_settings, train_config


def estimated_runs(spec: GoalSpec) -> tuple[int, int]:
    """Fewest and most runs that the sweep planner asks for before a budget ends it."""
    if spec.question.asks_minimum:
        return _of_minimum(spec)
    levels, conditions, seeds = len(spec.levels), len(spec.conditions), spec.seeds
    first = conditions * len(first_levels(spec)) * seeds.coarse
    repeated = min(levels, 1 + spec.criterion.rivals)
    if spec.question.kind == "interaction":
        others = conditions - 1
        return first + (2 + 2 * others) * seeds.replicate, first + (
            1 + 3 * others
        ) * seeds.replicate
    if spec.question.kind == "comparison":
        total = first + conditions * repeated * seeds.replicate
        return total, total
    closer = conditions * (levels - len(first_levels(spec))) * seeds.refine
    # Most: every level is screened, and a leader that its first contest does not confirm is put to another one.
    contests = 1 if repeated == levels else 2
    return (
        first + conditions * 2 * seeds.replicate,
        first + closer + conditions * contests * repeated * seeds.replicate,
    )


def _of_minimum(spec: GoalSpec) -> tuple[int, int]:
    """Fewest: an edge of the grid is confirmed at once. Most: every level is screened, and all are replicated."""
    conditions, levels = len(spec.conditions), len(spec.levels)
    coarse = len(coarse_levels(spec.levels))
    low = conditions * (coarse * spec.seeds.coarse + spec.seeds.replicate)
    screened = coarse * spec.seeds.coarse + (levels - coarse) * spec.seeds.refine
    return low, conditions * (screened + levels * spec.seeds.replicate)


def estimated_episodes(spec: GoalSpec, runs: tuple[int, int], folder: Path) -> tuple[int, int]:
    """Bounds of the train episodes: fewest runs of the smallest cell, most runs of the largest."""
    sizes: list[int] = []
    for condition in spec.conditions:
        for level in spec.levels:
            config = train_config(spec, spec.cell(level, condition), "estimate", folder)
            sizes.append(config.batch.tasks * config.batch.repeat * config.stop_at_step)
    return runs[0] * min(sizes), runs[1] * max(sizes)


def most_gpu_hours(spec: GoalSpec, runs: tuple[int, int]) -> float:
    """GPU hours if every run took its whole time limit; 0 when no cell takes a GPU. How long runs really take is not known yet."""
    worst = 0.0
    for condition in spec.conditions:
        for level in spec.levels:
            cell = cell_settings(spec, spec.cell(level, condition))
            worst = max(worst, cell.resources.gpus * cell.limits.max_time_s / 3600)
    return runs[1] * worst


def llm_text(spec: GoalSpec) -> str:
    """What the language model may spend, and what of it is kept for the interpretation; empty without one."""
    budget = spec.budget
    limits = {
        "USD": budget.llm_usd,
        "tokens": budget.llm_tokens,
        "calls": budget.llm_calls,
    }
    told = [
        f"{'USD ' if name == 'USD' else ''}{limit:,g}{'' if name == 'USD' else ' ' + name}"
        for name, limit in limits.items()
        if limit is not None
    ]
    if not told:
        return "no limit for the language model" if spec.planner == "llm" else ""
    kept = f"{budget.synthesis_share:.0%}"
    return f"at most {', '.join(told)} for the language model; {kept} of it is kept for the report's interpretation"
