"""From nothing to the first finished episode: import, server listening, engine booted, first episode, and what a call costs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import write_result

from swarm.client import SwarmClient, run_eval
from swarm.tasks import calculator
from swarm.testing.server_process import server_process


def main() -> None:
    """Measure once; the ratios matter more than the seconds."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from swarm.client import SwarmClient, run_episodes"], check=True
    )
    import_s = time.perf_counter() - start
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    bare_s = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with server_process(Path(folder, "state")) as server:
            listening_s = time.perf_counter() - start
            with SwarmClient(server.url, server.token()) as client:
                client.configure({"sampling": {"max_response_tokens": 16}})
                client.start()
                rolling_s = time.perf_counter() - start
                game = {"client": client, "scorer": calculator.score}
                run_eval(calculator.held_out(1), calculator.run_agent, **game)
                first_s = time.perf_counter() - start
                again = time.perf_counter()
                items = calculator.held_out(200)
                report = run_eval(items, calculator.run_agent, parallel=64, **game)
                many_s = time.perf_counter() - again
    write_result(
        "first_episode",
        "make bench",
        {
            "client_import_s": round(import_s - bare_s, 3),
            "server_listening_s": round(listening_s, 2),
            "engine_rolling_s": round(rolling_s, 2),
            "first_finished_episode_s": round(first_s, 2),
            "episodes_per_s_at_64": round(report.planned / many_s, 1),
        },
    )


if __name__ == "__main__":
    main()
