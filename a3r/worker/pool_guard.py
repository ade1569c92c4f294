"""Outlives a pool's worker. Supervisors keep attempts alive on purpose; on a cluster, what outlives the job would take what is others'.

Waits for the worker's end on a pipe that only the worker holds open: however it dies, the kernel closes it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from pathlib import Path

from a3r.worker.processes import read_json, sweep
from a3r.worker.supervisor import NONCE

logger = logging.getLogger(__name__)

GRACE_S = 5.0


def main() -> None:
    """Wait for the end of standard input, then clear up the workspace that is named."""
    # No child of the worker: engines signal and kill a job's descendants (Ray does).
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.stdin.buffer.read()
    clear_up(Path(sys.argv[1]))


def clear_up(home: Path) -> int:
    """End every process of the workspace's attempts, and remove the workspace if all evidence is delivered; returns how many ended.

    Evidence that nobody has stays where it is, for a person.
    """
    ended, delivered = 0, True
    for path in sorted((home / "runs").glob("*/attempt.json")):
        nonce = str((read_json(path) or {}).get("nonce") or "")
        if nonce:
            ended += sweep({NONCE: nonce}, GRACE_S)
        sent = read_json(path.with_name("uplink.json")) or {}
        delivered &= bool(sent.get("finished") or sent.get("refused"))
    if ended:
        logger.info("the worker is gone; ended %d processes that it left", ended)
    (home / "worker.token").unlink(missing_ok=True)
    if delivered:
        shutil.rmtree(home, ignore_errors=True)
    return ended


if __name__ == "__main__":
    main()
