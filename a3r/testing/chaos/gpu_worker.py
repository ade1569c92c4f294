"""``python -m a3r.testing.chaos.gpu_worker HOME DAEMON_FOLDER FILE``: the real worker, with GPUs that are a file."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.core.errors import HostError
from a3r.core.ports import GpuProcess, GpuReading
from a3r.worker.gpus import GpuOffice
from a3r.worker.hub_client import HubClient, from_ready_file
from a3r.worker.main import run_worker

SLOTS = 4
MEMORY_MB = 81_920


@dataclass(frozen=True)
class FileProbe:
    """A ``GpuProbe``; the file is read anew each time."""

    path: Path

    def read(self) -> list[GpuReading]:
        """As the file says; HostError when it says that the driver is silent."""
        body: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        if body["silent"]:
            raise HostError(body["silent"], hint="This driver is a file of a proof.")
        return [
            GpuReading(
                index=gpu["index"],
                uuid=f"GPU-{gpu['index']}",
                name="a GPU out of a file",
                memory_mb=MEMORY_MB,
                used_mb=gpu["used_mb"],
                processes=tuple(GpuProcess(**p) for p in gpu["processes"]),
            )
            for gpu in body["gpus"]
        ]


def main() -> int:
    """Work until told to end."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    home, daemon, inventory = (Path(text) for text in sys.argv[1:4])
    hub = HubClient(from_ready_file(daemon / "ready.json", daemon / "worker.token"))
    clean = run_worker(hub, home, slots=SLOTS, gpus=GpuOffice(FileProbe(inventory)))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
