"""A client of two servers: each episode is played by both models and ends on both or on none.

``python -m swarm.testing.chaos.pair``. It keeps a ledger for each server, and one of pairs: which episodes belong together, and
whether one of the servers refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from swarm.client.async_client import AsyncSwarmClient
from swarm.client.async_group import AsyncSwarmGroup
from swarm.client.group_episode import AsyncGroupEpisode
from swarm.client.rollouts import run_episodes_async
from swarm.client.tasks import ComputedTasks, Task
from swarm.protocol.states import EpisodeState
from swarm.testing.chaos import LOG_FORMAT
from swarm.testing.chaos.ledger import Ledger, append_line
from swarm.testing.chaos.orphans import end_with_parent
from swarm.triggers import ENVIRONMENT, arm

SERVERS = ("one", "two")
PAIRS_FILE = "pairs.jsonl"
TASKS = 100_000
EPISODE_TIMEOUT_S = 8.0


@dataclass
class PairPlayer:
    """The agent: each model speaks once, and both get the same reward."""

    ledgers: dict[str, Ledger]
    pairs: Path

    async def play(self, episode: AsyncGroupEpisode, task: Task) -> float:
        """Play, and end the episode itself, so that the ledgers are written around the finish."""
        messages = [{"role": "user", "content": f"Task {task.task_id}."}]
        said = ""
        for name in SERVERS:
            answer = await episode.role(name).chat(messages)
            said += answer.text
            messages += [answer.message, {"role": "user", "content": "And you?"}]
        reward = float(zlib.crc32(said.encode()) % 5)
        training = {name: episode.ids[name] for name in episode.training}
        for name, episode_id in training.items():
            self.ledgers[name].sending(episode_id, reward)
        append_line(self.pairs, {"ids": training, "refused": False, "why": ""})
        outcome = await episode.finish(reward)
        for name in training:
            if outcome.accepted and name in outcome.servers:
                self.ledgers[name].answered(outcome.servers[name])
        if outcome.state is EpisodeState.ABORTED and "refused" in outcome.reason:
            append_line(self.pairs, {"ids": training, "refused": True, "why": outcome.reason})
        return reward


def read_pairs(path: Path) -> list[dict[str, object]]:
    """Return the pairs that were noted; a torn last line is left out."""
    raw = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in raw.split(b"\n")[:-1]]


async def run(given: argparse.Namespace) -> None:
    """Play until both servers are trained."""
    folders = dict(zip(SERVERS, (given.folder, given.second_folder), strict=True))
    urls = dict(zip(SERVERS, (given.url, given.second_url), strict=True))
    clients: dict[str, AsyncSwarmClient] = {}
    for name in SERVERS:
        token = (folders[name] / "client.token").read_text(encoding="utf-8").strip()
        clients[name] = AsyncSwarmClient(
            urls[name], token, given.client_id, timeout_s=10.0, chat_timeout_s=20.0
        )
    ledgers = {name: Ledger(folders[name] / f"{given.client_id}.ledger") for name in SERVERS}
    player = PairPlayer(ledgers, given.folder / PAIRS_FILE)
    async with AsyncSwarmGroup(clients, reserve_s=3.0) as group:
        await run_episodes_async(
            ComputedTasks(lambda i: {"task_id": f"t{i}"}, TASKS),
            player.play,
            client=group,
            parallel=given.parallel,
            episode_timeout_s=EPISODE_TIMEOUT_S,
            max_consecutive_failures=1000,
        )


def main() -> None:
    """Parse and play; exit code 0 = training is complete on both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--second-url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--second-folder", type=Path, required=True)
    parser.add_argument("--client-id", default="player")
    parser.add_argument("--parallel", type=int, default=1)
    end_with_parent()
    arm(os.environ.get(ENVIRONMENT, ""))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
