"""The servers and clients of one attempt by name: their roles, their folders and files, their share of its GPUs.

The first server is ``server`` and the first client ``client``, as in every attempt that has one of each; further ones are
``server-<name>`` and ``client-<name>``, in all files and logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from a3r.blueprints.model import Blueprint, ClientSpec, ServerSpec
from a3r.core.errors import BlueprintError
from a3r.worker.folder import AttemptFolder

TRAINER, EVALUATOR = "client", "eval"
"""Kinds of tokens."""


@dataclass(frozen=True)
class Member:
    """One server of the attempt. ``name`` is empty for the first."""

    folder: AttemptFolder
    name: str = ""

    @property
    def role(self) -> str:
        """``server`` or ``server-<name>``."""
        return f"server{self._suffix}"

    @property
    def _suffix(self) -> str:
        return f"-{self.name}" if self.name else ""

    @property
    def state(self) -> Path:
        """Its state directory, with its tokens and its journal."""
        return self.folder.path / self.role

    @property
    def ready_file(self) -> Path:
        """Where it says that it listens."""
        return self.folder.path / f"ready{self._suffix}.json"

    @property
    def config_file(self) -> Path:
        """Its training config."""
        return self.folder.path / f"train{self._suffix}.json"

    @property
    def tokens_file(self) -> Path:
        """All its tokens."""
        return self.state / "tokens.json"

    def token_file(self, kind: str) -> Path:
        """One token alone, for those who may have it: ``client`` or ``eval``."""
        return self.folder.path / f"{kind}{self._suffix}.token"

    @property
    def steps_file(self) -> Path:
        """Its steps. Those of the first are the run's; of any other they are a log, ``steps-<name>``."""
        return self.folder.log(f"steps-{self.name}") if self.name else self.folder.steps_file


def member_of(folder: AttemptFolder, blueprint: Blueprint, server: ServerSpec) -> Member:
    """The files of a server of the blueprint."""
    return Member(folder, "" if server is blueprint.servers[0] else server.name)


def members(folder: AttemptFolder, blueprint: Blueprint) -> list[tuple[Member, ServerSpec]]:
    """Each server with its files, the first one first."""
    return [(member_of(folder, blueprint, server), server) for server in blueprint.servers]


def client_role(blueprint: Blueprint, client: ClientSpec) -> str:
    """``client`` for the first, ``client-<name>`` for the others."""
    return "client" if client is blueprint.clients[0] else f"client-{client.name}"


def code_of(folder: AttemptFolder, blueprint: Blueprint, client: ClientSpec) -> Path:
    """Where a client's code lies: clients of one tree are entries of one folder."""
    first = blueprint.clients[0]
    if client is first or client.tree_hash == first.tree_hash:
        return folder.client
    return folder.path / client_role(blueprint, client)


def server_of(blueprint: Blueprint, client: ClientSpec) -> ServerSpec:
    """The server that a client is for; the first where none has that name."""
    found = [server for server in blueprint.servers if server.name == client.server]
    return found[0] if found else blueprint.servers[0]


def token_kind(server: ServerSpec) -> str:
    """The token that clients get for a server: one that only answers cannot be trained by them."""
    return TRAINER if server.trains else EVALUATOR


def share_gpus(blueprint: Blueprint, gpus: Sequence[int]) -> dict[str, list[int]]:
    """Server name -> GPUs, disjoint, in the blueprint's order; what nobody asked for is the first server's.

    Raises:
        BlueprintError: the servers want more than the attempt has.
    """
    wanted = sum(server.gpus for server in blueprint.servers)
    if wanted > len(gpus):
        raise BlueprintError(
            f"The servers want {wanted} GPUs, the attempt has {len(gpus)}.",
            hint="Raise resources.gpus.",
        )
    left, shares = list(gpus), dict[str, list[int]]()
    for server in blueprint.servers:
        shares[server.name], left = left[: server.gpus], left[server.gpus :]
    first = blueprint.servers[0].name
    shares[first] = sorted([*shares[first], *left])
    return shares
