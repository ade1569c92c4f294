"""One hub on SQLite beside a crowd: 200 workers play 2,000 attempts over real HTTP; how long a claim takes, and how large the database gets.

The daemon is the real one with its leader; the workers are a script that claims, beats and sends what a real worker sends, each with
a token of its own. What an attempt measured is invented. Claims are asked for while work is queued, so their time is the hub's own;
all workers come within one heartbeat, and their first claims, a rush, are counted apart. ``crowd_lag`` is how late the script's own
threads got their turn: no time here can be shorter.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import write_result

from a3r.core.types import AttemptState, CampaignState, RunState
from a3r.testing.chaos.crowd import Crowd, Seen, name_of
from a3r.testing.chaos.filing import Study, file_campaign
from a3r.testing.chaos.rig import Rig, Times, rig
from a3r.worker.hub_client import HubClient

LEVELS = 2
DEADLINE_S = 3600.0
TIMES = Times(heartbeat_s=2.0, lease_s=60.0, lost_after_s=600.0)


def main() -> int:
    """Play and report; 1 when a run has no result, or one too many."""
    given, load = _parse(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="a3r-scale-") as scratch:
        figures = _play(Path(scratch), given.workers, given.attempts, given.hold_s)
    command = " ".join(["benchmarks/scale_hub.py", *sys.argv[1:]])
    # What other programs of a busy machine take from daemon and crowd depends on both.
    around = {"load_1m_before": round(load, 2), "realtime": os.sched_getscheduler(0) != 0}
    write_result(given.name, f"python {command}", {**around, **figures})
    return 1 if figures["runs_without_result"] or figures["attempts_given_twice"] else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--attempts", type=int, default=2000)
    parser.add_argument("--hold-s", type=float, default=60.0, help="how long an attempt lasts")
    parser.add_argument("--name", default="scale_hub", help="of the result file")
    return parser.parse_args()


def _play(folder: Path, workers: int, attempts: int, hold_s: float) -> dict[str, Any]:
    study = Study(seeds=attempts // LEVELS, steps=4, capacity=workers, items=50)
    with rig(folder, TIMES) as running:
        running.campaign_id = file_campaign(running.store, study, folder)
        crowd = Crowd(_connect(running, workers), workers, hold_s, TIMES.heartbeat_s)
        running.wait(lambda: _queued(running) >= min(workers, attempts), "work for everybody")
        began, before_s, own_s = time.monotonic(), _cpu_s(running.daemon.pid), time.process_time()
        crowd.start()
        running.wait(lambda: _ended(running, attempts), "the end of every run", DEADLINE_S)
        wall_s = time.monotonic() - began
        cpu_s, own_s = _cpu_s(running.daemon.pid) - before_s, time.process_time() - own_s
        crowd.stop()
        running.wait(lambda: _concluded(running), "the conclusion", DEADLINE_S)
        return {
            "workers": workers,
            "attempts": attempts,
            "hold_s": hold_s,
            "wall_s": round(wall_s, 1),
            "daemon_cpu_s": round(cpu_s, 1),
            "daemon_cpu_share": round(cpu_s / wall_s, 2),
            "crowd_cpu_share": round(own_s / wall_s, 2),
            "crowd_lag": _quantiles(crowd.seen.lag),
            "attempts_a_second": round(attempts / wall_s, 2),
            "seconds": _figures(crowd.seen),
            "errors": dict(crowd.seen.errors),
            "attempts_given_twice": len(crowd.seen.played) - len(set(crowd.seen.played)),
            "runs_without_result": _without_result(running),
            "database_bytes": _size(running.workspace.database),
            "database_bytes_a_run": _size(running.workspace.database) // attempts,
        }


def _connect(running: Rig, workers: int) -> Callable[[str], HubClient]:
    """A way to the hub for each worker, with a token that it alone uses."""
    url = f"http://127.0.0.1:{running.port()}"
    tokens = {name_of(number): secrets.token_hex(16) for number in range(workers)}
    for name, token in tokens.items():
        running.store.add_worker_token(name, token, time.time())
    return lambda name: HubClient(lambda: (url, tokens[name]))


def _queued(running: Rig) -> int:
    time.sleep(1.0)
    return sum(a.state is AttemptState.QUEUED for a in running.attempts())


def _ended(running: Rig, attempts: int) -> bool:
    time.sleep(1.0)  # a look at everything is not free
    runs = running.store.runs(running.campaign_id)
    return sum(r.state is RunState.SUCCEEDED for r in runs) >= attempts


def _concluded(running: Rig) -> bool:
    time.sleep(1.0)
    return running.store.campaign(running.campaign_id).state is not CampaignState.RUNNING


def _without_result(running: Rig) -> int:
    runs = running.store.runs(running.campaign_id)
    return sum(r.state is not RunState.SUCCEEDED for r in runs)


def _figures(seen: Seen) -> dict[str, dict[str, float]]:
    return {kind: _quantiles(values) for kind, values in sorted(seen.seconds.items())}


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    last = len(ordered) - 1
    found = {name: round(ordered[min(last, int(q * last))], 4) for name, q in at.items()}
    return {"count": float(len(ordered)), **found}


def _size(database: Path) -> int:
    return sum(p.stat().st_size for p in database.parent.glob(f"{database.name}*"))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
