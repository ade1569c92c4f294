"""Reward code is edited and its client restarted in the middle of a run: the server only sees another version of the code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from swarm.client import SwarmClient
from swarm.client.code_hash import hash_of_file
from swarm.protocol.records import StepMetrics
from swarm.server.journal.journal import JOURNAL_FILE, Journal
from swarm.testing.server_process import ServerProcess, server_process

CLIENT = """
import sys
from reward import score
from swarm.client import SwarmClient, TaskStream, run_episodes

def tasks():
    number = 0
    while True:
        yield {"id": f"t{number}"}
        number += 1

async def agent(episode, task):
    answer = await episode.chat([{"role": "user", "content": "Compute 1+1."}])
    return score(answer.text, episode.grant.repeat_index)

if __name__ == "__main__":
    with SwarmClient(sys.argv[1], sys.argv[2], client_id="trainer") as client:
        run_episodes(TaskStream(tasks), agent, client=client, resume=True)
"""
FIRST = "def score(text, repeat):\n    return 0.1 * repeat\n"
SECOND = "def score(text, repeat):\n    return 100 + 0.1 * repeat\n"
CONFIG = {
    "engine": "toy",
    "batch": {"tasks": 2, "repeat": 2},
    "stop_at_step": 1_000_000,
    # The batches before the oldest checkpoint are pruned, and this test reads them all.
    "checkpoint": {"every_steps": 1_000_000},
}


@contextmanager
def playing(folder: Path, server: ServerProcess) -> Generator[subprocess.Popen[bytes]]:
    """The client's process, killed at the end as a crash would."""
    with (folder / "client.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "client.py", server.url, server.token("client")],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def until_reward(client: SwarmClient, step: int, low: float) -> int:
    """Wait for a step whose whole batch has rewards above ``low``; returns its number."""
    while True:
        step = client.wait_step(step, timeout_s=60).step
        found = [m.step for m in client.metrics(step - 1) if (m.reward_mean or 0.0) > low]
        if found:
            return found[-1]


def in_order(metrics: list[StepMetrics]) -> bool:
    return [m.step for m in metrics] == list(range(1, len(metrics) + 1))


def test_reward_code_is_swapped_in_a_run_without_a_gap_in_its_steps(tmp_path: Path) -> None:
    folder = tmp_path / "my client ü"
    folder.mkdir()
    (folder / "client.py").write_text(CLIENT, encoding="utf-8")
    (folder / "reward.py").write_text(FIRST)
    hashes = [hash_of_file(folder / "client.py")]
    with (
        server_process(tmp_path / "state") as server,
        SwarmClient(server.url, server.token(), timeout_s=60) as admin,
    ):
        admin.configure(CONFIG)
        before = admin.start()
        with playing(folder, server):
            swapped = admin.wait_step(3, timeout_s=60).step
            (folder / "reward.py").write_text(SECOND)
        hashes.append(hash_of_file(folder / "client.py"))
        with playing(folder, server):
            last = until_reward(admin, swapped, 100.0)
            admin.wait_step(last + 2, timeout_s=60)
        after, metrics = admin.status(), admin.metrics()
        [info] = admin.clients(gone=True)
        server.kill()  # a clean end would save a checkpoint, and with it prune what is read below
    assert in_order(metrics)
    assert all(m.updated and m.groups == 2 for m in metrics)
    assert before.policy_version is not None
    assert after.policy_version is not None
    assert after.policy_version.incarnation == before.policy_version.incarnation
    assert (after.pid, after.engine_restarts, after.failure) == (before.pid, 0, None)
    assert (info.client_id, info.code_hash) == ("trainer", hashes[1])
    assert hashes[0] != hashes[1]
    _groups_are_of_one_version(tmp_path / "state", hashes)


def _groups_are_of_one_version(state_dir: Path, hashes: list[str]) -> None:
    """Every group that trained was played by one version of the code, and old ones never follow new ones."""
    journal = Journal.open(state_dir / JOURNAL_FILE)
    versions: list[int] = []
    tasks: list[str] = []
    for committed in journal.committed_after(0):
        for group in committed.groups:
            found = {journal.episode(i, calls=False).details.code_hash for i in group.episode_ids}
            assert len(found) == 1
            versions.append(hashes.index(found.pop()))
            tasks.append(group.task_id)
            assert all((reward >= 100) == bool(versions[-1]) for reward in group.rewards)
    journal.close()
    assert set(versions) == {0, 1}
    assert versions == sorted(versions)
    # The second client went on in the stream: no task was trained twice.
    assert len(set(tasks)) == len(tasks)
