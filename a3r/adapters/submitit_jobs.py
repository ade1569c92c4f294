"""Slurm, and this machine, through submitit. Each call is a short process of its own (``submitit_calls``) with a clean environment.

So the daemon's environment, which may hold keys, never reaches a job (``sbatch`` exports its caller's whole environment), submitit is
imported by nobody else, and what hangs in ``sbatch`` hangs in that process alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from a3r.adapters.engine_calls import call, jobs_of
from a3r.core.pools import EngineJob, JobAsk, PoolKind, PoolOptions

Json = dict[str, Any]

MODULE = "a3r.adapters.submitit_calls"
HINT = "`pip install 'a3r[pools]'` brings submitit; Slurm's own commands must be on the PATH"
KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "SLURM_CONF", "SLURM_CLUSTERS"),
)
"""All that a job's environment holds of ours."""


class SubmititJobs:
    """Implements ``a3r.core.pools.PoolEngine``."""

    def __init__(
        self, kind: PoolKind, options: PoolOptions, folder: Path, environ: Mapping[str, str]
    ) -> None:
        """``folder``: submitit's files, a sub-folder for each job under our id."""
        self._kind, self._options, self._folder = kind, options, folder
        self._environ = {name: environ[name] for name in KEPT if name in environ}

    def submit(self, ask: JobAsk) -> str:
        """Submit; a job of this id that is on file is returned as it is."""
        body: Json = {
            "id": ask.id,
            "argv": list(ask.argv),
            "env": dict(ask.env),
            "parameters": self._parameters(ask.id),
        }
        return str(self._call("submit", body)["external_id"])

    def look(self, jobs: Mapping[str, str]) -> dict[str, EngineJob]:
        """All of them in one call of Slurm's ``sacct``."""
        return jobs_of(self._call("look", {"jobs": dict(jobs)}))

    def stop(self, jobs: Sequence[str]) -> None:
        """``scancel``, or SIGTERM to the process of a local job."""
        self._call("stop", {"jobs": list(jobs)})

    def _parameters(self, job_id: str) -> Json:
        options = self._options
        wanted: Json = {"name": job_id, "timeout_min": options.time_limit_min}
        if options.gpus:
            wanted["gpus_per_node"] = options.gpus
        if options.cpus is not None:
            wanted["cpus_per_task"] = max(1, round(options.cpus))
        if options.memory_gb is not None:
            wanted["mem_gb"] = options.memory_gb
        if self._kind is PoolKind.SLURM and options.slurm:
            wanted["slurm_additional_parameters"] = dict(options.slurm)
        return wanted

    def _call(self, what: str, body: Json) -> Json:
        request = {"kind": self._kind.value, "folder": str(self._folder), **body}
        return call(MODULE, what, request, self._environ, hint=HINT)


def folder_of(options: PoolOptions, name: str, workspace: Path) -> Path:
    """Where submitit keeps its files for a pool; made for this user alone."""
    folder = Path(options.folder) if options.folder else workspace / "pools"
    path = folder.expanduser().absolute() / name
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.chmod(path, 0o700)  # noqa: PTH101 - submitit's pickles hold tickets
    return path
