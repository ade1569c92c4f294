"""``python -m a3r.hosts.gpu_trial [0-3]``: do this host's GPUs compute? One JSON object on stdout; busy ones are not touched."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from a3r.adapters.nvml import NvmlProbe
from a3r.core.errors import A3RError
from a3r.core.ports import GpuReading
from a3r.worker.gpus import is_free, parse_indices

Json = dict[str, Any]

TORCH_S = 90.0
# In a process of its own that sees one GPU: a context on it is gone when the process is.
PRODUCT = """
import torch
a = torch.ones(256, 256, device="cuda")
assert float((a @ a).sum()) == 256.0 ** 3
print(torch.__version__, torch.cuda.get_device_name())
"""


def main(arguments: list[str]) -> int:
    """Print ``{"gpus": [{index, name, memory_mb, state, detail}]}`` or ``{"error": ...}``."""
    try:
        readings = NvmlProbe().read()
        wanted = parse_indices(arguments[0]) if arguments else {g.index for g in readings}
    except (A3RError, ValueError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    found = [_one(g) for g in readings if g.index in wanted]
    missing = sorted(set(wanted) - {g.index for g in readings})
    sys.stdout.write(json.dumps({"gpus": found, "missing": missing}) + "\n")
    return 0


def _one(gpu: GpuReading) -> Json:
    about: Json = {"index": gpu.index, "name": gpu.name, "memory_mb": gpu.memory_mb}
    if not is_free(gpu):
        return {**about, "state": "busy", "detail": f"{gpu.used_mb} MiB are in use"}
    try:
        done = subprocess.run(
            ["/usr/bin/env", f"CUDA_VISIBLE_DEVICES={gpu.uuid}", sys.executable, "-c", PRODUCT],
            capture_output=True,
            text=True,
            timeout=TORCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**about, "state": "failed", "detail": f"no product within {TORCH_S:.0f} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        return {**about, "state": "failed", "detail": last[:300]}
    return {**about, "state": "ok", "detail": f"torch {done.stdout.split()[0]}"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
