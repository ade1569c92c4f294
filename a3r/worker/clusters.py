"""What a server's engine left on a Ray cluster, when an attempt is over: freed by the server's own command, ``swarm reap``.

Processes of this host are the worker's own to end; those on other machines of a cluster are not in its sight.
"""

from __future__ import annotations

import json
import logging
import subprocess
from pathlib import Path
from typing import Any

from a3r.blueprints.model import Blueprint, ServerSpec
from a3r.core.errors import A3RError
from a3r.worker.environments import Environments
from a3r.worker.folder import AttemptFolder
from a3r.worker.members import members
from a3r.worker.processes import child_env
from a3r.worker.site_settings import site_settings

logger = logging.getLogger(__name__)

LIMIT_S = 180.0


def reap_clusters(
    folder: AttemptFolder, blueprint: Blueprint, environments: Environments
) -> dict[str, dict[str, Any]]:
    """Return server -> what was freed on its cluster, or why that is not known; empty when no server ran on one.

    The servers must have ended. Safe to call twice.
    """
    found: dict[str, dict[str, Any]] = {}
    for member, server in members(folder, blueprint):
        address = server.train.verl.ray_address
        if server.train.engine == "verl" and address is not None and member.state.is_dir():
            found[server.name] = _reaped(server, member.state, address, environments)
    return found


def _reaped(
    server: ServerSpec, state: Path, address: str, environments: Environments
) -> dict[str, Any]:
    command = ["-P", "-m", "swarm.cli", "reap", "--json", "--state-dir", str(state)]
    own = environments.environ
    try:
        ready = environments.ready(server.environment)
        if ready.container is not None:
            return {"error": "the server ran in a container: reap by hand"}
        done = subprocess.run(
            [*ready.argv, *command, "--address", address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
            env={**child_env(own), **site_settings(own), **ready.variables, **ready.secrets},
        )
        told: dict[str, Any] = json.loads(done.stdout)
    except (A3RError, OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("The cluster at %s was not reaped: %s", address, error)
        return {"error": str(error)}
    return {"error": told["error"]["message"]} if "error" in told else told
