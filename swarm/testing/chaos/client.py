"""The client that the proofs run: a real process with an agent that uses a tool and a sandbox, and keeps a ledger.

``python -m swarm.testing.chaos.client --url URL --token-file FILE --folder DIR ...``. Everything that it says is a function
of what the model said, so that the same seats lead to the same rewards however often the process dies.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from swarm.client.async_client import AsyncSwarmClient
from swarm.client.episode import AsyncEpisode
from swarm.client.rollouts import run_episodes_async
from swarm.client.tasks import ComputedTasks, Task
from swarm.protocol.episodes import FinishReply
from swarm.protocol.states import EpisodeKind
from swarm.testing.chaos import LOG_FORMAT
from swarm.testing.chaos.ledger import Ledger
from swarm.testing.chaos.orders import Orders
from swarm.testing.chaos.orphans import end_with_parent
from swarm.testing.chaos.tool import ask_sandbox, ask_tool
from swarm.triggers import ENVIRONMENT, arm

TASKS = 100_000
FEW_TASKS = 500
"""In a shared queue, whose list is sent as a whole."""
FAILS_EVERY = 7
"""The agent fails at its first try of every seventh task; the next try of this process succeeds."""
HELPED_EVERY = 4
"""In every fourth task a second agent makes the second call, with a key of its own."""
PROMISED_EVERY = 3
"""Every third task is finished by prepare and commit."""
EPISODE_TIMEOUT_S = 1.5


@dataclass
class Player:
    """The agent and what it needs."""

    ledger: Ledger
    orders: Orders
    tool_port: int
    tried: set[str] = field(default_factory=set[str])

    async def play(self, episode: AsyncEpisode, task: Task) -> float:
        """Two turns; ends the episode itself, so that the ledger is written around the finish."""
        messages = [{"role": "user", "content": f"Task {task.task_id}."}]
        said = ""
        helper = await episode.key("helper") if _often(task, HELPED_EVERY) else episode
        for speaker, ask in ((episode, self._ask_tool), (helper, self._ask_sandbox)):
            answer = await speaker.chat(messages)
            said += answer.text
            messages += [answer.message, {"role": "user", "content": await ask(answer.text)}]
        self._fail_at_first(task)
        reward = float(zlib.crc32(said.encode()) % 5)
        self.ledger.sending(episode.id, reward)
        self.ledger.answered(await self._end(episode, task, reward))
        return reward

    async def _end(self, episode: AsyncEpisode, task: Task, reward: float) -> FinishReply:
        """Finish in one step, or in the two of a swarm group."""
        if not _often(task, PROMISED_EVERY):
            return await episode.finish(reward)
        promise = await episode.prepare(reward)
        if not promise.prepared:
            raise RuntimeError(f"no promise: {promise.reason}")
        return await episode.commit()

    async def _ask_tool(self, text: str) -> str:
        return await ask_tool(self.tool_port, text)

    async def _ask_sandbox(self, text: str) -> str:
        return await ask_sandbox(self.orders, text)

    def _fail_at_first(self, task: Task) -> None:
        if _often(task, FAILS_EVERY) and task.task_id not in self.tried:
            self.tried.add(task.task_id)
            raise RuntimeError("an agent may fail")


def _often(task: Task, every: int) -> bool:
    """Whether something happens in this task that happens in one of ``every``; the same in each try of it."""
    return zlib.crc32(f"{task.task_id}/{every}".encode()) % every == 0


async def evaluate(given: argparse.Namespace, step: int) -> None:
    """Play one eval episode of ``step`` and close its round, as an evaluator would."""
    token = given.eval_token_file.read_text(encoding="utf-8").strip()
    async with AsyncSwarmClient(given.url, token, given.client_id, timeout_s=10.0) as client:
        async with client.episode("held-out", kind=EpisodeKind.EVAL) as episode:
            await episode.chat([{"role": "user", "content": "Hello."}])
            await episode.finish(1.0)
        await client.close_eval_round(step, planned=1, completed=1)


async def run(given: argparse.Namespace) -> None:
    """Play until training is complete."""
    token = given.token_file.read_text(encoding="utf-8").strip()
    player = Player(
        Ledger(given.folder / f"{given.client_id}.ledger"),
        Orders(given.folder / "orders"),
        given.tool_port,
    )
    async with AsyncSwarmClient(
        given.url, token, given.client_id, timeout_s=10.0, chat_timeout_s=20.0
    ) as client:

        async def on_step(step: int) -> None:
            if given.eval_every and step % given.eval_every == 0:
                await evaluate(given, step)

        await run_episodes_async(
            ComputedTasks(lambda i: {"task_id": f"t{i}"}, FEW_TASKS if given.shared else TASKS),
            player.play,
            client=client,
            parallel=given.parallel,
            task_set=given.task_set,
            shared=given.shared,
            episode_timeout_s=EPISODE_TIMEOUT_S,
            max_consecutive_failures=1000,
            on_step=on_step,
        )


def main() -> None:
    """Parse and play; exit code 0 = training is complete."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--client-id", default="player")
    parser.add_argument("--task-set", default="default")
    parser.add_argument("--tool-port", type=int, required=True)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--eval-token-file", type=Path)
    end_with_parent()
    arm(os.environ.get(ENVIRONMENT, ""))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
