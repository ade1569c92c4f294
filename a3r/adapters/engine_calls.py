"""Calls of an engine's own Python library, each in a short process: the daemon imports none of them, and what hangs hangs there alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from a3r.core.errors import PoolRefused, PoolUnavailable
from a3r.core.pools import EngineJob, PoolJobState

Json = dict[str, Any]

TIMEOUT_S = 120.0
REFUSED = 2
"""Exit code of a call that only a person can mend."""
MOST_WORDS = 400


def call(
    module: str,
    what: str,
    request: Json,
    environ: Mapping[str, str],
    *,
    hint: str,
    timeout_s: float = TIMEOUT_S,
) -> Json:
    """Run ``python -m module what`` with ``request`` on its stdin; returns the JSON of its last line.

    Raises:
        PoolRefused: exit code 2; the last line of stderr says why.
        PoolUnavailable: any other failure, or no answer in time.
    """
    try:
        # What a job is given goes through a pipe: nothing of it is ever on a command line.
        done = subprocess.run(
            [sys.executable, "-m", module, what],
            input=json.dumps(request).encode(),
            capture_output=True,
            env=dict(environ),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PoolUnavailable(f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise PoolUnavailable(f"no process could be started: {error}") from error
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    words = said[-1][:MOST_WORDS] if said else f"exit code {done.returncode}"
    if done.returncode == REFUSED:
        raise PoolRefused(words, hint=hint)
    raise PoolUnavailable(words)


def jobs_of(answer: Json) -> dict[str, EngineJob]:
    """The answer to a look."""
    return {
        job: EngineJob(
            PoolJobState(told["state"]),
            str(told["detail"])[:MOST_WORDS],
            str(told.get("external_id") or job),
        )
        for job, told in answer["jobs"].items()
    }
