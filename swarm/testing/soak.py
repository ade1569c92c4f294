"""Very many short episodes against one real server process: its memory and its open files must not grow with their number.

``python -m swarm.testing.soak [--episodes N] [--json FILE]``. Exit code 0 when both stayed flat, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from swarm.client.async_client import AsyncSwarmClient
from swarm.client.client import SwarmClient
from swarm.client.episode import AsyncEpisode
from swarm.client.rollouts import run_episodes_async
from swarm.client.tasks import ComputedTasks, Task
from swarm.testing.server_process import server_process

EPISODES = 40_000
FAIL_EVERY = 50
"""Every so many episodes the agent fails: what is lost must be forgotten too."""
TASKS, REPEAT = 16, 4
WARM_SHARE = 0.3
"""Of the episodes, played before the first measurement: caches are full then."""
MAX_GROWTH_MIB = 24.0
"""Memory that may be gained between the first measurement and the last."""
MAX_HANDLES = 8
"""Open files that may be gained."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement; of the server and of this process, which is the client."""

    episodes: int
    server_mib: float
    server_handles: int
    client_mib: float
    client_handles: int


@dataclass(frozen=True, slots=True)
class Flatness:
    """What a soak found."""

    samples: list[Sample]
    wall_s: float

    @property
    def grown(self) -> dict[str, float]:
        """Return how much more there was at the end than after the warm-up: MiB, and numbers of open files."""
        first, last = self.samples[0], self.samples[-1]
        names = ("server_mib", "server_handles", "client_mib", "client_handles")
        return {name: round(getattr(last, name) - getattr(first, name), 1) for name in names}

    def problems(self, *, max_mib: float = MAX_GROWTH_MIB) -> list[str]:
        """Return what grew too much, in words; empty = nothing."""
        limits = {
            "server_mib": max_mib,
            "client_mib": max_mib,
            "server_handles": MAX_HANDLES,
            "client_handles": MAX_HANDLES,
        }
        count = self.samples[-1].episodes - self.samples[0].episodes
        return [
            f"{name} grew by {more} in {count} episodes; at most {limits[name]:g} may be"
            for name, more in self.grown.items()
            if more > limits[name]
        ]


class _Meter:
    """Measures after the warm-up and then at each tenth of the rest."""

    def __init__(self, server_pid: int, episodes: int, say: Callable[[str], None]) -> None:
        self._server, self._self = psutil.Process(server_pid), psutil.Process(os.getpid())
        self._say = say
        self._next = warm = int(episodes * WARM_SHARE)
        self._every = max(1, (episodes - warm) // 10)
        self.played = 0
        self.samples: list[Sample] = []

    def count(self) -> None:
        """Note one more episode."""
        self.played += 1
        if self.played >= self._next:
            self._next += self._every
            self.measure()

    def measure(self) -> None:
        """Take a sample."""
        mib = 1 << 20
        sample = Sample(
            self.played,
            round(self._server.memory_info().rss / mib, 1),
            self._server.num_fds(),
            round(self._self.memory_info().rss / mib, 1),
            self._self.num_fds(),
        )
        self.samples.append(sample)
        self._say(f"{sample}")


def soak(folder: Path, episodes: int, say: Callable[[str], None] = lambda _text: None) -> Flatness:
    """Play ``episodes`` and a few more (whole steps) on a toy server in ``folder``; return what was measured."""
    began = time.monotonic()
    steps = max(3, episodes // (TASKS * REPEAT))
    config = {
        "engine": "toy",
        "stop_at_step": steps,
        "batch": {"tasks": TASKS, "repeat": REPEAT},
        "checkpoint": {"every_steps": 10, "keep": 2},
    }
    with server_process(folder) as server:
        with SwarmClient(server.url, server.token()) as admin:
            admin.configure(config)
            admin.start()
        meter = _Meter(server.process.pid, steps * TASKS * REPEAT, say)
        asyncio.run(_play(server.url, server.token("client"), meter))
        meter.measure()
    return Flatness(meter.samples, time.monotonic() - began)


async def _play(url: str, token: str, meter: _Meter) -> None:
    async def agent(episode: AsyncEpisode, task: Task) -> float:
        answer = await episode.chat([{"role": "user", "content": f"Task {task.task_id}."}])
        meter.count()
        if meter.played % FAIL_EVERY == 0:
            raise RuntimeError("an agent may fail")
        return float(len(answer.text) % 3)

    tasks = ComputedTasks(lambda i: {"task_id": f"t{i}"}, 1_000_000)
    async with AsyncSwarmClient(url, token) as client:
        await run_episodes_async(tasks, agent, client=client, parallel=32)


def main() -> int:
    """Play, report."""
    parser = argparse.ArgumentParser(prog="python -m swarm.testing.soak", description=__doc__)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--json", type=Path, help="write the result here too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swarm-soak-") as folder:
        found = soak(Path(folder), given.episodes, lambda text: print(text, file=sys.stderr))  # noqa: T201
    problems = found.problems()
    if given.json:
        samples = [asdict(sample) for sample in found.samples]
        body = {
            "wall_s": round(found.wall_s, 1),
            "grown": found.grown,
            "samples": samples,
            "problems": problems,
        }
        given.json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    last = found.samples[-1]
    lines = [
        *problems,
        f"episodes {last.episodes}, seconds {found.wall_s:.0f}, grown {found.grown}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
