"""Which lanes a run of chaos plays, with which faults. Data, and a seed for their order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from swarm.testing.chaos.faults import (
    ClockJump,
    DiskFull,
    Fault,
    Network,
    Pause,
    Provoke,
    ShotFault,
    StaleFinishes,
    Surroundings,
)
from swarm.testing.chaos.lane import Lane
from swarm.testing.chaos.orders import Mischief, Part
from swarm.testing.chaos.proxy import Trouble
from swarm.testing.chaos.world import World
from swarm.triggers import Action, Point

DAY_S = 86400.0
EVAL_EVERY = 5
TOY = "toy"
TORCH = "torch"
STEPS = 160
"""Of a lane on the toy engine, at most: it ends once everything was broken."""
TORCH_STEPS = 150
FRONT_LANES = ("front", "front b", "front c", "front d")

PROVOKED = {
    Point.ENGINE_LOST: Provoke.ENGINE,
    Point.BOOT_BEFORE_ENGINE: Provoke.ENGINE,
    Point.BOOT_REPLAYED: Provoke.FRONT,
    Point.BOOT_DONE: Provoke.ENGINE,
    Point.RESUME_LOADED: Provoke.FRONT,
    Point.RESUME_ORPHANS_ENDED: Provoke.FRONT,
    Point.ENGINE_BOOTING: Provoke.ENGINE,
    Point.ENGINE_BOOTED: Provoke.FRONT,
    Point.CLIENT_REGISTERED: Provoke.FRONT,
    Point.CONFIG_RECORDED: Provoke.CONFIG,
    Point.SAVE_HALF_SWAPPED: Provoke.CHECKPOINT,
}
"""Points that are reached only after something else went wrong."""
TORCH_ONLY = frozenset({Point.SAVE_WRITTEN, Point.SAVE_HALF_SWAPPED})
"""Points of the real engine's checkpoint; the toy one writes a single small file."""
SHARED_ONLY = frozenset({Point.QUEUE_RECORDED})
"""Points that only clients with a shared queue of tasks reach, once, at their start."""
MAY_RAISE = (
    Point.GRANT_BEFORE_JOURNAL,
    Point.CALL_BEGUN,
    Point.CALL_SAMPLED,
    Point.FINISH_BEFORE_JOURNAL,
    Point.STEP_BEFORE_COMMIT,
    Point.STEP_TRAINED,
    Point.ENGINE_TICK,
    Point.ENGINE_BEFORE_TRAIN,
    Point.ENGINE_BEFORE_SAVE,
    Point.CLIENT_CHAT_ANSWERED,
)
"""Points at which an exception that nobody expects must cost no more than a crash would."""
CONTROL = ("/swarm/episodes", "/finish", "/swarm/pool")
CHAT = "/chat/completions"


def toy_config(
    steps: int, *, tasks: int = 2, repeat: int = 2, gated: bool = False
) -> dict[str, Any]:
    """A run of ``steps`` small steps on the toy engine, with short deadlines and every batch kept."""
    config: dict[str, Any] = {
        "engine": "toy",
        "stop_at_step": steps,
        "batch": {"tasks": tasks, "repeat": repeat, "drain_deadline_s": 2.0},
        "checkpoint": {"every_steps": 3, "keep": 100_000},
        "episode": {"idle_deadline_s": 3.0, "total_deadline_s": 20.0},
        "engine_hang_s": 5.0,
    }
    if gated:
        config["eval_gate"] = {"at_steps": list(range(0, steps, EVAL_EVERY))}
    return config


def torch_config(steps: int) -> dict[str, Any]:
    """A short run of the real engine on the built-in tiny model."""
    return {
        **toy_config(steps),
        "engine": "torch",
        "sampling": {"max_response_tokens": 8},
        "checkpoint": {"every_steps": 2, "keep": 100_000},
        "engine_hang_s": 30.0,
    }


def lanes(seed: int, scale: float = 1.0) -> list[Lane]:
    """Return the lanes of one run; ``scale`` below 1 takes that share of each lane's faults, for a quick look."""
    rng = random.Random(seed)  # noqa: S311 - an order of faults, not a secret
    made = [
        *_front(rng),
        _engine(rng),
        _client(rng),
        _network(rng),
        _outside(rng),
        _disk(),
        _crowd(rng),
        _shared(rng),
        _paired(rng),
        _overlapped(rng),
        _torch(rng),
    ]
    return [_scaled(lane, scale) for lane in made]


def _scaled(lane: Lane, scale: float) -> Lane:
    if scale >= 1:
        return lane
    count = max(1, round(len(lane.faults) * scale))
    return replace(lane, faults=lane.faults[:count])


def _shots(points: Sequence[Point], rng: random.Random, *, times: int = 1) -> list[Fault]:
    """Kill shots at each point, ``times`` times, at its first to third passing."""
    return [
        ShotFault(point, Action.KILL, _nth(point, rng), PROVOKED.get(point, Provoke.NOTHING))
        for _ in range(times)
        for point in points
    ]


def _nth(point: Point, rng: random.Random) -> int:
    rare = point in PROVOKED or point.value.startswith(("checkpoint.", "eval.", "engine.save"))
    return 1 if rare else rng.randint(1, 2 if point.value.startswith("step.") else 3)


def _points(process: str) -> list[Point]:
    return [p for p in Point if p.process == process and p not in TORCH_ONLY | SHARED_ONLY]


def _quick(process: str) -> list[Point]:
    """Return the points but one: only the client that died could keep its promise, so its seat waits for the promise's end."""
    return [p for p in _points(process) if p is not Point.CLIENT_PREPARED]


def _mixed(faults: list[Fault], rng: random.Random) -> list[Fault]:
    rng.shuffle(faults)
    return faults


def _front(rng: random.Random) -> list[Lane]:
    """Every point of the front twice, over several lanes: a front that comes back takes the longest."""
    first = (ShotFault(Point.CONFIG_RECORDED),)
    world = World(toy_config(STEPS, gated=True), eval_every=EVAL_EVERY)
    faults = _mixed(_shots(_points("front"), rng, times=2), rng)
    return [
        Lane(name, world, faults[number :: len(FRONT_LANES)], first, TOY)
        for number, name in enumerate(FRONT_LANES)
    ]


def _engine(rng: random.Random) -> Lane:
    faults = _shots(_points("engine"), rng, times=3)
    faults += [ShotFault(p, Action.RAISE) for p in MAY_RAISE]
    stopped = (Point.ENGINE_TICK, Point.ENGINE_BEFORE_TRAIN, Point.ENGINE_BEFORE_SAVE)
    faults += [ShotFault(p, Action.STOP) for p in stopped]
    return Lane("engine", World(toy_config(STEPS)), _mixed(faults, rng), reference=TOY)


def _client(rng: random.Random) -> Lane:
    faults = _shots(_quick("client"), rng, times=4)
    faults += _shots([Point.CLIENT_PREPARED], rng)
    faults += [
        ShotFault(p, Action.STOP) for p in (Point.CLIENT_GRANTED, Point.CLIENT_BEFORE_FINISH)
    ]
    faults += [ShotFault(p, Action.STOP) for p in (Point.CALL_SAMPLED, Point.FINISH_AFTER_JOURNAL)]
    return Lane("client", World(toy_config(STEPS)), _mixed(faults, rng), reference=TOY)


def _network(rng: random.Random) -> Lane:
    faults: list[Fault] = [Network(trouble, path) for trouble in Trouble for path in CONTROL]
    once = [t for t in Trouble if t not in (Trouble.REPEAT, Trouble.REPEAT_LATE)]
    faults += [Network(trouble, CHAT) for trouble in once]
    faults += [Network(trouble, "/abort") for trouble in (Trouble.REPEAT, Trouble.CUT_ANSWER)]
    faults += [StaleFinishes(n) for n in range(6)]
    return Lane(
        "network", World(toy_config(STEPS), proxied=True), _mixed(faults, rng), reference=TOY
    )


def _outside(rng: random.Random) -> Lane:
    faults: list[Fault] = [Surroundings(p, m) for p in Part for m in Mischief for _ in range(2)]
    faults += [ClockJump(s) for s in (DAY_S, -DAY_S, 365 * DAY_S, -3600.0, 0.0)]
    faults += [Pause(who) for who in ("front", "engine", "client") for _ in range(2)]
    return Lane("outside", World(toy_config(STEPS)), _mixed(faults, rng), reference=TOY)


def _disk() -> Lane:
    world = World(toy_config(STEPS), limited_disk=True)
    return Lane("disk", world, [DiskFull() for _ in range(6)], reference=TOY)


def _crowd(rng: random.Random) -> Lane:
    world = World(
        toy_config(STEPS, tasks=6, repeat=4),
        clients=3,
        parallel=4,
        proxied=True,
        trouble_rate=0.02,
        seed=rng.randrange(1 << 30),
    )
    everywhere = [
        *rng.sample(_points("front"), 8),
        *rng.sample(_points("engine"), 4),
        *rng.sample(_quick("client"), 4),
    ]
    return Lane("crowd", world, _mixed(_shots(everywhere, rng), rng))


def _shared(rng: random.Random) -> Lane:
    """Three clients that take tasks from one queue of the server."""
    world = World(toy_config(STEPS, tasks=3, repeat=4), clients=3, parallel=2, shared=True)
    first = (ShotFault(Point.QUEUE_RECORDED),)
    points = [*rng.sample(_points("front"), 6), *rng.sample(_quick("client"), 3)]
    return Lane("shared", world, _mixed(_shots(points, rng), rng), first)


def _paired(rng: random.Random) -> Lane:
    """Two servers in one episode: whichever of the two comes by first is hit."""
    world = World(toy_config(STEPS, tasks=3), parallel=3, paired=True)
    own = (Point.PREPARE_BEFORE_JOURNAL, Point.PREPARE_AFTER_JOURNAL, Point.CLIENT_PREPARED)
    own += (Point.FINISH_BEFORE_JOURNAL, Point.FINISH_AFTER_JOURNAL, Point.FINISH_BEFORE_ANSWER)
    others = [Point.GRANT_AFTER_JOURNAL, Point.CALL_SAMPLED, Point.STEP_TRAINED, Point.ENGINE_TICK]
    return Lane("paired", world, _mixed(_shots([*own, *others], rng), rng))


def _overlapped(rng: random.Random) -> Lane:
    """Asynchronous mode: the weights move while episodes go on, so no two runs are the same."""
    config = {**toy_config(STEPS, tasks=4), "asynchronous": {"enabled": True, "max_staleness": 2}}
    world = World(config, clients=2, parallel=3)
    steps = [p for p in _points("front") if p.value.startswith(("step.", "checkpoint."))]
    points = [*steps, *rng.sample(_points("engine"), 5), *rng.sample(_quick("client"), 2)]
    return Lane("overlapped", world, _mixed(_shots(points, rng), rng))


def _torch(rng: random.Random) -> Lane:
    points = [
        Point.STEP_AFTER_COMMIT,
        Point.STEP_TRAINED,
        Point.FINISH_AFTER_JOURNAL,
        Point.CHECKPOINT_SAVED,
        Point.BOOT_REPLAYED,
        Point.ENGINE_TICK,
        Point.ENGINE_BEFORE_TRAIN,
        Point.ENGINE_TRAINED,
        Point.SAVE_WRITTEN,
        Point.SAVE_HALF_SWAPPED,
        Point.ENGINE_SAVED,
        Point.CLIENT_BEFORE_FINISH,
    ]
    return Lane(
        "torch", World(torch_config(TORCH_STEPS)), _mixed(_shots(points, rng), rng), reference=TORCH
    )
