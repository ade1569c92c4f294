"""What a finished campaign cost: wall time, CPU seconds by process and by sampling, updating, HTTP, evaluation, start.

Reads the workspace's database and runs nothing, so it is not part of ``make bench``'s measuring but of its reporting:

    python benchmarks/bench_campaign.py [CAMPAIGN]      # in the workspace; default: the newest campaign that is done
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from common import write_result

from a3r.core.errors import WorkspaceError
from a3r.core.workspace import find_workspace
from a3r.store.store import Store


def main() -> None:
    """Add up the accepted and other attempts of one campaign."""
    try:
        folder = find_workspace(Path.cwd(), os.environ).database
    except WorkspaceError:
        print("bench_campaign: no workspace here; run `make demo` first")
        return
    with Store.open(folder) as store:
        done = [c for c in store.campaigns() if c.state == "done"]
        wanted = store.campaign(sys.argv[1]) if len(sys.argv) > 1 else (done[-1] if done else None)
        if wanted is None:
            print("bench_campaign: no finished campaign in this workspace; run `make demo` first")
            return
        events = store.events(wanted.id, 0, 100_000)
        cpu: Counter[str] = Counter()
        parts: Counter[str] = Counter()
        attempts = store.attempts(wanted.id)
        for attempt in attempts:
            for role, seconds in ((attempt.summary or {}).get("cpu_s") or {}).items():
                cpu[role] += seconds or 0.0
            for step in store.steps(attempt.id):
                parts["sampling"] += step.get("sampling_cpu_s") or 0.0
                parts["update"] += step.get("update_cpu_s") or 0.0
                parts["front_http"] += step.get("front_cpu_s") or 0.0
        runs = store.runs(wanted.id)
    total = sum(cpu.values())
    parts["client_http_and_agent"] = cpu["client"]
    parts["evaluators"] = sum(v for k, v in cpu.items() if k.startswith("evaluator"))
    parts["server_start_and_rest"] = total - sum(parts.values())
    wall = events[-1].at - events[0].at
    write_result(
        "campaign",
        "make demo && python benchmarks/bench_campaign.py",
        {
            "campaign": wanted.name,
            "runs": len(runs),
            "attempts": len(attempts),
            "wall_s": round(wall, 1),
            "cpu_s": round(total, 1),
            "cores_busy": round(total / wall, 2),
            "cpu_s_by_process": {k: round(v, 1) for k, v in sorted(cpu.items())},
            "cpu_share": {k: round(v / total, 3) for k, v in parts.most_common()} if total else {},
        },
    )


if __name__ == "__main__":
    main()
