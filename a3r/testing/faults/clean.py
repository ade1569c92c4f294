"""Clean SYNTHETIC runs: plain ones, ones that learned nothing, and those that look faulty and are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from a3r.testing.faults.story import Shape, Story, story


def plain(name: str, rng: random.Random) -> Story:
    """A run that learns: any size, any gain."""
    return story(name, random_shape(rng))


def null(name: str, rng: random.Random) -> Story:
    """A run that learns nothing: a result, not a fault."""
    shape = random_shape(rng)
    return story(name, replace(shape, success=(shape.success[0], shape.success[0])))


def worse(name: str, rng: random.Random) -> Story:
    """Train and held-out reward fall together, slowly: a bad setting, honestly measured."""
    shape = random_shape(rng)
    low = shape.success[0] * rng.uniform(0.6, 0.9)
    return story(name, replace(shape, success=(shape.success[0], low)))


def solved(name: str, rng: random.Random) -> Story:
    """The task is solved: entropy goes to nothing and groups are all equal, by right."""
    shape = random_shape(rng)
    ends = (shape.success[0], rng.uniform(0.97, 1.0))
    return story(name, replace(shape, success=ends, entropy=(0.5, rng.uniform(0.001, 0.02))))


def longer_thinking(name: str, rng: random.Random) -> Story:
    """Answers grow manyfold and pay for it."""
    shape = random_shape(rng)
    ends = (shape.success[0], min(shape.success[0] + rng.uniform(0.3, 0.5), 0.95))
    tokens = (60.0, 60.0 * rng.uniform(4, 12))
    return story(name, replace(shape, success=ends, tokens=tokens, items=max(shape.items, 100)))


def small_batch(name: str, rng: random.Random) -> Story:
    """One or two groups a step: most steps have nothing to train on, and rewards jump."""
    shape = random_shape(rng)
    return story(name, replace(shape, tasks=rng.choice((1, 2)), task_spread=1.5))


def kl_spike(name: str, rng: random.Random) -> Story:
    """The KL estimator has a heavy tail: single steps shoot up and are back at once."""
    made = story(name, random_shape(rng))
    for step in rng.sample(made.steps, k=2):
        step["kl"] = rng.uniform(2, 30)
    return made


def gradient_spike(name: str, rng: random.Random) -> Story:
    """One gradient out of scale, clipped, without consequence."""
    made = story(name, random_shape(rng))
    rng.choice(made.steps)["grad_norm"] = rng.uniform(20, 200)
    return made


def cut_from_the_start(name: str, rng: random.Random) -> Story:
    """A tight answer limit is under study: half of the answers are cut off, from the first step on."""
    share = rng.uniform(0.45, 0.7)
    return story(name, replace(random_shape(rng), truncated=(share, share), tokens=(10.0, 9.5)))


def few_lost(name: str, rng: random.Random) -> Story:
    """Some episodes were aborted, and many leftovers dropped: oversampling does that."""
    made = story(name, random_shape(rng))
    for step in made.steps:
        step["episodes_dropped"] = {
            "leftover": step["episodes"],
            "episode_aborted": rng.choice((0, 0, 1)),
        }
    return made


def rare_repeat(name: str, rng: random.Random) -> Story:
    """A task space so small that a held-out prompt came up once."""
    made = story(name, replace(random_shape(rng), steps=60, tasks=8))
    rng.choice(made.steps)["eval_overlap"] = 1
    return made


def short_step(name: str, rng: random.Random) -> Story:
    """One step of many consumed a group less."""
    made = story(name, replace(random_shape(rng), steps=60))
    step = rng.choice(made.steps)
    step["groups"] -= min(1, step["groups"] - 1)
    return made


def dip(name: str, rng: random.Random) -> Story:
    """Rewards dip in the middle and recover."""
    made = story(name, random_shape(rng))
    third = len(made.steps) // 3
    for step in made.steps[third : third + 5]:
        made.train(step, made.shape.success[0])
    made.stamp()
    return made


CLEAN: dict[str, Callable[[str, random.Random], Story]] = {
    make.__name__: make
    for make in (
        plain, null, worse, solved, longer_thinking, small_batch, kl_spike, gradient_spike,
        cut_from_the_start, few_lost, rare_repeat, short_step, dip,
    )
}  # fmt: skip


def random_shape(rng: random.Random) -> Shape:
    """Any ordinary run: 18 to 120 steps, 4 to 32 groups of 4 or 8, 50 to 200 held-out items."""
    start = rng.uniform(0.15, 0.5)
    return Shape(
        steps=rng.choice((18, 30, 60, 120)),
        tasks=rng.choice((4, 8, 16, 32)),
        repeat=rng.choice((4, 8)),
        items=rng.choice((50, 100, 200)),
        success=(start, min(start + rng.uniform(0.05, 0.5), 0.95)),
        entropy=(rng.uniform(0.5, 1.5), rng.uniform(0.15, 0.5)),
        kl=rng.uniform(0.005, 0.2),
        tokens=(60.0, 60.0 * rng.uniform(0.6, 1.8)),
        gradient=rng.uniform(0.1, 2.0),
        task_spread=rng.uniform(0.5, 1.5),
    )
