"""The mark that everything of one server's engine carries: a variable of its processes, a Ray namespace, names of placement groups."""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

NONCE = "SWARM_ENGINE_NONCE"
"""Environment variable of each process."""
PREFIX = "swarm-"
"""``swarm-<nonce>`` is the Ray namespace; placement groups are named ``swarm-<nonce>-...``."""


def nonce_of(environment: Mapping[str, str]) -> str:
    """Return the server's nonce, as its front gave it; a random one without a front."""
    return environment.get(NONCE) or secrets.token_hex(6)


def state_nonce(state_dir: Path) -> str:
    """Return the nonce of the servers of a state directory on this machine: 16 hex digits, the same after each start."""
    place = f"{socket.gethostname()}:{state_dir.absolute()}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]
