"""``a3r host add``, step by step. Each step looks first: the second time nothing is done that was done.

The worker itself is started by the daemon's link, which also starts it again after a crash or a reboot.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from a3r.adapters.ssh import Ssh
from a3r.adapters.ssh_keys import accept_key, unknown_key
from a3r.core.errors import HostError
from a3r.core.workspace import NETWORK_FILE_SYSTEMS
from a3r.hosts.calling import ask
from a3r.hosts.options import HostOptions
from a3r.hosts.wheel import CPU_INDEX, EXTRAS, Wheel, own_tree, own_wheel
from a3r.hub.client import HubClient, segment

Json = dict[str, Any]
Say = Callable[[str], None]

PROBE_S = 90.0
INSTALL_S = 7200.0
LITTLE_DISK = 2 * 2**30
INSTALLED_SIZE = 12 * 2**30
"""Of an environment with CUDA's libraries, while pip unpacks it."""


@dataclass(frozen=True)
class Adding:
    """One host to be added or brought up to date."""

    name: str
    ssh: Ssh
    options: HostOptions
    """Its ``python`` is the person's choice, or empty."""
    accept: str = ""
    """Fingerprint of the host's key that the person vouches for."""
    ca_pem: str = ""
    say: Say = print

    def run(self, hub: HubClient) -> Json:
        """Do what is missing; returns the host as the hub knows it, with ``changes`` in words.

        Raises:
            HostError: the host's key is not known (the message says it), no way in, or something is missing there.
        """
        self._trust()
        seen = ask(
            self.ssh,
            "probe",
            {"folder": self.options.folder, "worker_python": self.options.python},
            python=self.options.python,
            timeout_s=PROBE_S,
        )
        self._suitable(seen)
        self.say(
            f"{seen['user']}@{seen['host']}: {seen['system']}, Python {seen['python_version']}"
        )
        made = self._installed(seen)
        options = self.options.model_copy(
            update={"folder": made["folder"], "python": made["python"], "has_ca": bool(self.ca_pem)}
        )
        changes = ["made an environment of this a3r"] if made["made"] else []
        changes += self._configure(hub, seen, options)
        before = _known(hub, self.name)
        body = hub.put(
            f"hosts/{segment(self.name)}",
            {"address": self.ssh.address, "options": options.model_dump(mode="json")},
        )
        if before is None or before["updated_at"] != body["updated_at"]:
            changes.append("filed the host" if before is None else "brought its entry up to date")
        return {**body, "changes": changes, "probe": seen}

    def _trust(self) -> None:
        if self.accept:
            accept_key(self.ssh, self.accept)
        try:
            self.ssh.run("true")
        except HostError as error:
            if error.details.get("kind") == "unknown_key":
                raise unknown_key(self.ssh) from error
            raise

    def _suitable(self, seen: Json) -> None:
        place = f"{seen['folder']} on {self.name}"
        if not seen["writable"]:
            raise HostError(f"{place} can not be written.", hint="Choose another: --folder.")
        if seen["file_system"] in NETWORK_FILE_SYSTEMS:
            raise HostError(
                f"{place} is on a network file system ({seen['file_system']}).",
                hint="Attempts write much and lock files: choose a folder on a local disk with --folder.",
            )
        if seen["disk_free_bytes"] < LITTLE_DISK:
            free = seen["disk_free_bytes"] / 2**30
            raise HostError(
                f"{place} has {free:.1f} GiB left.", hint="Free some space, or choose --folder."
            )

    def _installed(self, seen: Json) -> Json:
        own = own_tree()
        theirs = seen["a3r"] if self.options.python else None
        spec: Json = {"folder": self.options.folder, "python": seen["python"]}
        if theirs is not None:
            if theirs["version"] != own[0] or theirs["tree"] != own[1]:
                self.say(
                    f"note: {self.options.python} has a3r {theirs['version']}, which is not quite this one "
                    f"({own[0]}); without --python a host gets this very one"
                )
        else:
            wheel = own_wheel()
            self.say(
                "looking for, or making, an environment of this a3r (the first time takes minutes)"
            )
            spec |= _wheel_spec(wheel)
            if seen["disk_free_bytes"] < INSTALLED_SIZE:
                self.say("note: little disk is left; an environment with CUDA takes up to 12 GiB")
        return ask(self.ssh, "install", spec, python=seen["python"], timeout_s=INSTALL_S)

    def _configure(self, hub: HubClient, seen: Json, options: HostOptions) -> list[str]:
        has = {"token_sha256": seen["token_sha256"], "worker_id": seen["worker"]["id"]}
        token = hub.post(f"hosts/{segment(self.name)}/token", has)["token"]
        spec: Json = {"folder": options.folder, "token": token, "ca_pem": self.ca_pem}
        ask(self.ssh, "configure", spec, python=seen["python"])
        return ["gave it a token of its own"] if token else []


def _known(hub: HubClient, name: str) -> Json | None:
    found = [h for h in hub.get("hosts")["hosts"] if h["name"] == name]
    return found[0] if found else None


def _wheel_spec(wheel: Wheel) -> Json:
    return {
        "wheel": base64.b64encode(wheel.data).decode(),
        "wheel_name": wheel.name,
        "stamp": wheel.stamp,
        "pins": wheel.pins,
        "extras": f"[{','.join(EXTRAS)}]",
        "cpu_index": CPU_INDEX,
    }
