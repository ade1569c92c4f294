"""Settings of a machine that a server's engine needs and no blueprint knows: which network NCCL takes, where caches lie.

Only swarm servers get them, never generated code. Secrets are not among them: a blueprint names those (``secret_names``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIXES = ("CUDA_", "GLOO_", "HF_", "NCCL_", "TORCH_", "TRITON_", "UCX_", "VERL_", "VLLM_")
NAMES = frozenset({"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_TMPDIR", "XDG_CACHE_HOME"})
"""Not all of Ray's: a worker that is itself a job of Ray has what only that job's processes may have."""
SECRET = re.compile(r"TOKEN$|KEY|SECRET|PASSWORD|CREDENTIAL")


def site_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what of a worker's environment its servers get, besides what every process gets."""
    return {
        name: value
        for name, value in environ.items()
        if name in NAMES or (name.startswith(PREFIXES) and not SECRET.search(name))
    }
