"""Ray, through its Jobs REST API (versioned, with an OpenAPI document): this machine needs no Ray, and no version of it.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import urllib3
from urllib3.exceptions import HTTPError

from a3r.core.errors import PoolRefused, PoolUnavailable
from a3r.core.pools import EngineJob, JobAsk, PoolJobState, PoolOptions

Json = dict[str, Any]

TIMEOUT_S = 30.0
MOST_WORDS = 400
STATES = {
    "PENDING": PoolJobState.QUEUED,
    "RUNNING": PoolJobState.STARTING,
    "SUCCEEDED": PoolJobState.ENDED,
    "STOPPED": PoolJobState.FAILED,
    "FAILED": PoolJobState.FAILED,
}
GIB = 2**30


class RayJobs:
    """Implements ``a3r.core.pools.PoolEngine``. Ray's ``submission_id`` is our job id."""

    def __init__(self, options: PoolOptions) -> None:
        """Connects lazily."""
        self._options = options
        self._pool = urllib3.PoolManager(retries=False, maxsize=2)

    def submit(self, ask: JobAsk) -> str:
        """Submit under our id; a job that is there already is the answer of an earlier try."""
        options = self._options
        environment = dict(options.runtime_env)
        variables = cast("Json", environment.get("env_vars") or {})
        # The worker ends when it is told, whatever the cluster's default is: it reports before it goes.
        environment["env_vars"] = {"RAY_JOB_STOP_WAIT_TIME_S": "30", **variables, **ask.env}
        body: Json = {
            # "exec": the shell that Ray starts becomes the worker, which then hears the signals itself.
            "entrypoint": f"exec {shlex.join(ask.argv)}",
            "submission_id": ask.id,
            "runtime_env": environment,
            "metadata": {"a3r_pool_job": ask.id},
            "entrypoint_num_gpus": options.gpus or None,
            # Without a resource to ask for, Ray runs every job on its head node.
            "entrypoint_num_cpus": options.cpus or float(options.slots),
            "entrypoint_memory": None
            if options.memory_gb is None
            else int(options.memory_gb * GIB),
        }
        given = {key: value for key, value in body.items() if value is not None}
        status, answer = self._send("POST", "/api/jobs/", given)
        if status == 200 or (status >= 400 and self._one(ask.id) is not None):
            return ask.id
        raise PoolRefused(
            f"Ray refuses the job ({status}): {answer}", hint=f"see {options.address}"
        )

    def look(self, jobs: Mapping[str, str]) -> dict[str, EngineJob]:
        """One request a job: the list would bring everybody's."""
        found = {ours: self._one(theirs or ours) for ours, theirs in jobs.items()}
        return {ours: job for ours, job in found.items() if job is not None}

    def stop(self, jobs: Sequence[str]) -> None:
        """Ask Ray to end them: SIGTERM, then SIGKILL."""
        for job in jobs:
            self._send("POST", f"/api/jobs/{quote(job, safe='')}/stop", {})

    def _one(self, job: str) -> EngineJob | None:
        status, answer = self._send("GET", f"/api/jobs/{quote(job, safe='')}", None)
        if status == 404:
            return None
        try:
            body = cast("Json", json.loads(answer))
            state = STATES[str(body["status"])]
        except (ValueError, KeyError, TypeError) as error:
            raise PoolUnavailable(f"Ray answered {status}: {answer}") from error
        detail = " ".join(str(body.get("message") or "").split())
        return EngineJob(state, detail[:MOST_WORDS])

    def _send(self, method: str, path: str, body: Json | None) -> tuple[int, str]:
        """Status and text (cut)."""
        headers = {"Content-Type": "application/json"} | self._auth()
        try:
            answer = self._pool.request(
                method,
                self._options.address + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(total=TIMEOUT_S, connect=5.0),
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise PoolUnavailable(
                f"Ray's job server at {self._options.address} does not answer ({type(error).__name__})"
            ) from error
        text = answer.data.decode("utf-8", "replace")
        if answer.status in (401, 403):
            raise PoolRefused(
                f"Ray's job server refuses us ({answer.status})",
                hint="give the cluster's token: --token-file, e.g. ~/.ray/auth_token of its head node",
            )
        return answer.status, text if answer.status == 200 else text[-MOST_WORDS:]

    def _auth(self) -> dict[str, str]:
        if not self._options.token_file:
            return {}
        try:
            token = Path(self._options.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PoolRefused(f"the cluster's token cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}
