"""SkyPilot, through its managed jobs. Each call is a short process of its own (``skypilot_calls``)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from a3r.adapters.engine_calls import call, jobs_of
from a3r.core.pools import EngineJob, JobAsk, PoolOptions

Json = dict[str, Any]

MODULE = "a3r.adapters.skypilot_calls"
HINT = "install skypilot into a3r's environment, and see that `sky check` is content"
TIMEOUT_S = 600.0
"""Its first launch makes a controller."""


class SkyPilotJobs:
    """Implements ``a3r.core.pools.PoolEngine``. A managed job has our id as its name."""

    def __init__(self, options: PoolOptions, environ: Mapping[str, str]) -> None:
        """``environ``: SkyPilot needs the clouds' credentials, so its own process gets all of it; the job gets none of it."""
        self._options, self._environ = options, environ

    def submit(self, ask: JobAsk) -> str:
        """Launch; one of this name that is there is the answer of an earlier try."""
        body: Json = {
            "id": ask.id,
            "task_file": self._options.task_file,
            "run": f"exec {shlex.join(ask.argv)}",
            "env": dict(ask.env),
        }
        return str(self._call("submit", body)["external_id"])

    def look(self, jobs: Mapping[str, str]) -> dict[str, EngineJob]:
        """One query for all."""
        return jobs_of(self._call("look", {"jobs": dict(jobs)}))

    def stop(self, jobs: Sequence[str]) -> None:
        """Cancel."""
        self._call("stop", {"jobs": list(jobs)})

    def _call(self, what: str, body: Json) -> Json:
        return call(MODULE, what, body, self._environ, hint=HINT, timeout_s=TIMEOUT_S)
