"""How one host is reached and used, as it is filed with its row. No secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from a3r.adapters.ssh import Ssh
from a3r.core.errors import HostError
from a3r.core.workspace import Workspace

Json = dict[str, Any]

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
FOLDER = "~/.a3r-host"
"""On the host; a folder of the host's name in it is the host's own."""


class HostOptions(BaseModel):
    """Frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    """On the host, absolute once the host was set up."""
    python: str = ""
    """The interpreter that runs the worker there, absolute; empty before the host was set up."""
    gpus: str = ""
    """Which GPUs may be given away, as ``0-3,6``; empty = all."""
    slots: int | None = Field(default=None, ge=0)
    """Attempts at once; None = one a GPU, else one a core."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """Of ssh."""
    identity: str = ""
    config: str = ""
    """Files of ssh on this machine, absolute; empty = the person's usual ones."""
    hub_url: str = ""
    """Where the host dials the hub by itself; empty = through the link."""
    has_ca: bool = False
    """Certificates for ``hub_url`` were filed on the host."""
    alive_s: int = Field(default=5, ge=1, le=600)

    def ssh(self, address: str, known_hosts: Path) -> Ssh:
        """The way to the host."""
        return Ssh(address, known_hosts, self.port, self.identity, self.config, self.alive_s)

    def keep_spec(self, name: str, *, work: bool) -> Json:
        """What the keeper on the host is told."""
        return {
            "name": name,
            "folder": self.folder,
            "python": self.python,
            "hub": self.hub_url,
            "ca": self.has_ca,
            "gpus": self.gpus,
            "slots": self.slots,
            "work": work,
        }


def known_hosts(workspace: Workspace) -> Path:
    """Keys of hosts that were accepted in this workspace."""
    return workspace.daemon / "known_hosts"


def check_name(name: str) -> str:
    """Return ``name``.

    Raises:
        HostError: it would be no good as a name of files and tokens.
    """
    if not NAME.match(name):
        raise HostError(
            f"{name!r} can not be the name of a host here.",
            hint="Letters, digits, dot, dash and underscore, 64 at most: give one with --name.",
        )
    return name


def default_name(address: str) -> str:
    """``gpu1`` of ``user@gpu1.example.org``; an IP address stays whole."""
    host = address.rpartition("@")[2].strip("[]").replace(":", "-")
    return host if re.fullmatch(r"[0-9.]+", host) else host.partition(".")[0]
