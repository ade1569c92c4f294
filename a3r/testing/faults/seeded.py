"""Faults put into clean SYNTHETIC runs. ``strength`` is from 0 (barely there) to 1 (gross)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from a3r.testing.faults.clean import random_shape
from a3r.testing.faults.story import Shape, Story, story

Make = Callable[[str, random.Random, float], Story]


@dataclass(frozen=True)
class Fault:
    """A kind of fault: how it is made, and which rules ought to speak."""

    make: Make
    rule: str
    """The rule that must find it."""
    also: frozenset[str] = field(default_factory=frozenset[str])
    """Rules that may speak as well, because the fault shows there too."""


def base_weights(name: str, rng: random.Random, strength: float) -> Story:
    """Training began from another checkpoint."""
    made = story(name, random_shape(rng))
    made.rounds["initial"]["fingerprint"] = f"{rng.getrandbits(64):016x}"
    return made


def final_weights(name: str, rng: random.Random, strength: float) -> Story:
    """The final round was answered by the checkpoint of an earlier step (the best one, say)."""
    made = story(name, random_shape(rng))
    made.rounds["final"]["fingerprint"] = made.steps[-2 - round(strength * 8)]["fingerprint"]
    if made.rounds["final"]["fingerprint"] == made.steps[-1]["fingerprint"]:
        made.rounds["final"]["fingerprint"] = made.rounds["initial"]["fingerprint"]
    return made


def other_scorer(name: str, rng: random.Random, strength: float) -> Story:
    """The scorer or the items were changed after approval."""
    made = story(name, random_shape(rng))
    made.rounds[rng.choice(("initial", "final"))][
        rng.choice(("evaluator_hash", "item_set_hash"))
    ] = "changed"
    return made


def other_items(name: str, rng: random.Random, strength: float) -> Story:
    """The final round played easier items under an unchanged label."""
    made = story(name, random_shape(rng))
    made.rounds["final"]["prefix"] = "easier"
    return made


def wrong_seed(name: str, rng: random.Random, strength: float) -> Story:
    """The server ran with its default seed, or nobody can say with which."""
    made = story(name, random_shape(rng))
    made.summary = {} if rng.random() < 0.5 else {"seed": rng.randint(2, 99)}
    return made


def seed_without_effect(name: str, rng: random.Random, strength: float) -> Story:
    """The seed never reached the sampler: replicates are copies."""
    made = story(name, random_shape(rng))
    made.copies = 1 + round(strength * 3)
    return made


def leak(name: str, rng: random.Random, strength: float) -> Story:
    """Held-out prompts are among the training tasks."""
    made = story(name, random_shape(rng))
    share = 0.005 + 0.5 * strength**2
    for step in made.steps:
        step["eval_overlap"] = sum(rng.random() < share for _ in range(step["groups"]))
    return made


def short_batches(name: str, rng: random.Random, strength: float) -> Story:
    """Lost members were not replaced: steps consumed less than the level under study."""
    shape = replace(random_shape(rng), tasks=rng.choice((8, 16, 32)))
    made = story(name, shape)
    for step in made.steps:
        lost = sum(rng.random() < 0.04 + 0.5 * strength for _ in range(shape.tasks))
        step["groups"] = max(shape.tasks - lost, 1)
        step["episodes"] = step["groups"] * shape.repeat
    return made


def stale_samples(name: str, rng: random.Random, strength: float) -> Story:
    """A synchronous blueprint whose steps trained on samples of older weights."""
    made = story(name, random_shape(rng))
    for step in rng.sample(made.steps, k=max(round(strength * len(made.steps)), 1)):
        step["staleness_max"] = rng.randint(1, 4)
    return made


def many_lost(name: str, rng: random.Random, strength: float) -> Story:
    """The environment dies in many episodes, the hard ones first."""
    made = story(name, random_shape(rng))
    share = 0.15 + 0.6 * strength
    for step in made.steps:
        lost = round(step["episodes"] * share / (1 - share) * rng.uniform(0.7, 1.3))
        step["episodes_dropped"] = {rng.choice(("episode_aborted", "episode_expired")): lost}
    return made


def hacked_reward(name: str, rng: random.Random, strength: float) -> Story:
    """The agent learns what pays in training and not what is asked: held-out rewards stand still or fall."""
    shape = random_shape(rng)
    start = shape.success[0]
    train = replace(shape, success=(start, min(start + 0.1 + 0.5 * strength, 0.95)))
    made = story(name, train)
    made.score("final", start * rng.uniform(0.6, 1.0))
    return made


def late_collapse(name: str, rng: random.Random, strength: float) -> Story:
    """Training goes well and then falls apart."""
    shape = random_shape(rng)
    good = min(shape.success[0] + rng.uniform(0.3, 0.5), 0.9)
    made = story(name, replace(shape, success=(shape.success[0], good)))
    end = good - (good - 0.02) * (0.3 + 0.7 * strength)
    late = made.late(rng.uniform(0.5, 0.75))
    for number, step in enumerate(late):
        made.train(step, good + (end - good) * min(3 * (number + 1) / len(late), 1.0))
    made.score("final", end)
    made.stamp()
    return made


def flat(rng: random.Random) -> Shape:
    """A shape that gains nothing, so that no gain excuses a symptom."""
    shape = random_shape(rng)
    return replace(shape, success=(shape.success[0], shape.success[0] * rng.uniform(0.85, 1.0)))


def longer_answers(name: str, rng: random.Random, strength: float) -> Story:
    """Answers grow without use."""
    factor = 2.5 + 15 * strength
    return story(name, replace(flat(rng), tokens=(60.0, 60.0 * factor)))


def shorter_answers(name: str, rng: random.Random, strength: float) -> Story:
    """Answers shrink to almost nothing."""
    factor = 2.5 + 25 * strength
    return story(name, replace(flat(rng), tokens=(60.0, 60.0 / factor)))


def cut_answers(name: str, rng: random.Random, strength: float) -> Story:
    """More and more answers run into the limit."""
    return story(name, replace(flat(rng), truncated=(0.05, min(0.4 + 0.6 * strength, 1.0))))


def nothing_to_learn(name: str, rng: random.Random, strength: float) -> Story:
    """Tasks far too hard: nearly all groups fail whole."""
    shape = replace(flat(rng), task_spread=0.3)
    chance = 0.04 * (1 - strength) + 0.002
    return story(name, replace(shape, success=(chance, chance), repeat=4))


def entropy_collapse(name: str, rng: random.Random, strength: float) -> Story:
    """The policy becomes deterministic before it can do the task."""
    end = 0.08 * (1 - strength) + 0.0005
    return story(name, replace(flat(rng), entropy=(rng.uniform(0.5, 1.5), end)))


def entropy_growth(name: str, rng: random.Random, strength: float) -> Story:
    """The policy dissolves into noise."""
    start = rng.uniform(0.4, 1.0)
    return story(name, replace(flat(rng), entropy=(start, start * (2.0 + 6 * strength))))


def kl_runaway(name: str, rng: random.Random, strength: float) -> Story:
    """The policy leaves the model that it began with."""
    return story(name, replace(random_shape(rng), kl=0.8 + 8 * strength))


def exploding_gradients(name: str, rng: random.Random, strength: float) -> Story:
    """Norms grow by orders of magnitude, or jump again and again."""
    made = story(name, random_shape(rng))
    growing = rng.random() < 0.5
    for number, step in enumerate(made.steps):
        if growing:
            step["grad_norm"] *= (10 + 2000 * strength) ** (number / len(made.steps))
        elif rng.random() < 0.08 + 0.3 * strength:
            step["grad_norm"] *= rng.uniform(80, 1000)
    return made


def no_gradients(name: str, rng: random.Random, strength: float) -> Story:
    """The loss is masked away, or the parameters are not those that the loss sees."""
    made = story(name, flat(rng))
    for step in made.steps:
        if rng.random() < 0.45 + 0.55 * strength:
            step["grad_norm"] = 0.0
    return made


def not_a_number(name: str, rng: random.Random, strength: float) -> Story:
    """Updates whose loss is not a number: undone, or recorded as missing."""
    made = story(name, random_shape(rng))
    moved = [s for s in made.steps if s["updated"]]
    for step in rng.sample(moved, k=max(round(strength * len(moved) / 3), 1)):
        if rng.random() < 0.5:
            step |= {"updated": False, "rolled_back": "the gradient is not finite"}
        step |= {"loss": None, "grad_norm": None}
    made.stamp()
    return made


def sampler_apart(name: str, rng: random.Random, strength: float) -> Story:
    """Sampler and trainer hold different weights or different kernels."""
    made = story(name, random_shape(rng))
    for step in made.steps:
        if rng.random() < 0.15 + 0.85 * strength:
            step["logprob_gap_max"] = rng.uniform(0.4, 6.0)
    return made


def lost_updates(name: str, rng: random.Random, strength: float) -> Story:
    """Updates too small for the weights' precision: the step is counted and nothing moves."""
    made = story(name, flat(rng))
    before = made.rounds["initial"]["fingerprint"]
    for step in made.steps:
        if rng.random() < 0.4 + 0.6 * strength:
            step["fingerprint"] = before
        before = step["fingerprint"]
    made.rounds["final"]["fingerprint"] = before
    return made


def guarded(name: str, rng: random.Random, strength: float) -> Story:
    """The agent's answers loop, and the swarm's guard masks them."""
    made = story(name, flat(rng))
    for step in made.steps:
        share = 0.2 + 0.7 * strength
        step["guard"] = {"loop:mask": sum(rng.random() < share for _ in range(step["episodes"]))}
    return made


def _faults() -> dict[str, Fault]:
    symptoms = frozenset({"reward_plateau", "weights_stuck", "zero_variance", "reward_collapse"})
    pairs: tuple[tuple[Make, str], ...] = (
        (base_weights, "base_weights"), (final_weights, "final_weights"),
        (other_scorer, "evaluator_seal"), (other_items, "evaluator_seal"),
        (wrong_seed, "seed_proven"), (seed_without_effect, "replicates"), (leak, "overlap"),
        (short_batches, "batch_size"), (stale_samples, "staleness"), (many_lost, "lost_episodes"),
        (hacked_reward, "reward_hacking"), (late_collapse, "reward_collapse"),
        (longer_answers, "length_drift"), (shorter_answers, "length_drift"),
        (cut_answers, "truncation"), (nothing_to_learn, "zero_variance"),
        (entropy_collapse, "entropy_collapse"), (entropy_growth, "entropy_growth"),
        (kl_runaway, "kl_runaway"), (exploding_gradients, "gradient_explosion"),
        (no_gradients, "gradient_vanished"), (not_a_number, "not_finite"),
        (sampler_apart, "sampler_gap"), (lost_updates, "weights_stuck"),
        (guarded, "guarded_episodes"),
    )  # fmt: skip
    shows_too = {"late_collapse": frozenset({"reward_hacking"}), "hacked_reward": symptoms}
    return {
        make.__name__: Fault(
            make, rule, shows_too.get(make.__name__, frozenset({"reward_plateau"}))
        )
        for make, rule in pairs
    }


FAULTS: dict[str, Fault] = _faults()
