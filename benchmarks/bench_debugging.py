"""How long a person waits: from an edit to its traceback with ``swarm debug``, and from a client's start to its first finished episode.

Both against a live server that trains the built-in tiny model; the ratios are to the start of a Python process that does nothing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import best_of, write_result

from swarm.client import SwarmClient
from swarm.testing.server_process import ServerProcess, server_process

TIMES = 5
AGENT = """
import sys
from swarm.client import SwarmClient, Task, run_episodes

tasks = [Task(f"t{i}") for i in range(100)]

async def agent(episode, task):
    answer = await episode.chat([{"role": "user", "content": "Compute 1+2."}], max_tokens=4)
    EDIT
    return float(len(answer.text))

async def noted(episode, task):
    reward = await agent(episode, task)
    await episode.finish(reward)
    print("finished", flush=True)

if __name__ == "__main__":
    with SwarmClient(sys.argv[1], sys.argv[2]) as client:
        run_episodes(tasks, noted, client=client, parallel=1)
"""


Wait = tuple[float, float]
"""Seconds on the clock, and seconds of processor time of the process (which hardly depend on how busy the machine is)."""


def cpu_s() -> float:
    """Processor seconds of all ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def until(command: list[str], folder: Path, stream: str, word: bytes) -> Wait:
    """What passes from the start of ``command`` until ``word`` is on its stdout or stderr; the process is then killed."""
    before = cpu_s()
    took = _until(command, folder, stream, word)
    return took, cpu_s() - before


def _until(command: list[str], folder: Path, stream: str, word: bytes) -> float:
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    try:
        source = process.stdout if stream == "stdout" else process.stderr
        assert source is not None
        for line in source:
            if word in line:
                return time.perf_counter() - start
        rest = process.stderr.read() if stream == "stdout" and process.stderr else b""
        raise RuntimeError(f"{command[0]} ended without {word!r}: {rest.decode()[-2000:]}")
    finally:
        process.kill()
        process.communicate()


def measure(server: ServerProcess, folder: Path) -> dict[str, Any]:
    """Shortest of ``TIMES`` waits of each kind, seconds."""
    script = folder / "client.py"
    debug = [sys.executable, "-m", "swarm.cli", "debug", "client.py", "--server", server.url]
    debug += ["--token-file", str(server.state_dir / "tokens.json")]

    def edit_and_debug() -> Wait:
        script.write_text(AGENT.replace("EDIT", f"raise LookupError({time.time()!r})"))
        return until(debug, folder, "stderr", b"LookupError")

    def first_episode() -> Wait:
        script.write_text(AGENT.replace("EDIT", "pass"))
        command = [sys.executable, "client.py", server.url, server.token("client")]
        return until(command, folder, "stdout", b"finished")

    bare = best_of(TIMES, lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    traceback_s, traceback_cpu_s = map(
        min, zip(*(edit_and_debug() for _ in range(TIMES)), strict=True)
    )
    first_s, first_cpu_s = map(min, zip(*(first_episode() for _ in range(TIMES)), strict=True))
    return {
        "python_start_s": round(bare, 3),
        "edit_to_traceback_s": round(traceback_s, 3),
        "edit_to_traceback_cpu_s": round(traceback_cpu_s, 3),
        "edit_to_traceback_over_python_start": round(traceback_s / bare, 1),
        "start_to_first_finished_episode_s": round(first_s, 3),
        "start_to_first_finished_episode_cpu_s": round(first_cpu_s, 3),
        "start_to_first_finished_episode_over_python_start": round(first_s / bare, 1),
    }


def main() -> None:
    """Measure on a server that rolls."""
    config = {
        "sampling": {"max_response_tokens": 16},
        "batch": {"tasks": 1000, "repeat": 2},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process(Path(folder, "state")) as server,
    ):
        with SwarmClient(server.url, server.token()) as client:
            client.configure(config)
            client.start()
        figures = measure(server, Path(folder))
    write_result("debugging", "make bench", figures)


if __name__ == "__main__":
    main()
