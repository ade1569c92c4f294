"""Makes an attempt's folder ready: the client's code (checked against the blueprint), the server's config, the tokens.

Every part is safe to repeat, so a worker killed in the middle just prepares again.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from a3r.blueprints.artifact import unpack_tree
from a3r.blueprints.model import Blueprint, ServerSpec
from a3r.core.errors import BlueprintError
from a3r.core.hashing import bytes_hash, tree_hash
from a3r.core.wire import AttemptSpec
from a3r.worker.folder import AttemptFolder, client_of
from a3r.worker.members import EVALUATOR, TRAINER, Member, code_of, members
from a3r.worker.private import write_private
from swarm.protocol.config import EvalGate, TrainConfig

ROLES = ("admin", "client", "eval", "signing")
GATE_DEADLINE_S = 600.0


def prepare(
    folder: AttemptFolder,
    spec: AttemptSpec,
    blueprint: Blueprint,
    fetch: Callable[[str], bytes],
) -> None:
    """Unpack, check, write config and tokens.

    Raises:
        BlueprintError: the artifact is not the code that was reviewed.
        HubUnreachable: the artifact cannot be fetched now.
        OSError: the disk.
    """
    for part in (folder.evals, folder.path / "logs", folder.path / "proc"):
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
    unpack_client(folder, spec, blueprint, fetch)
    unpack_further(folder, spec, blueprint, fetch)
    unpack_evaluator(folder, blueprint, fetch)
    for member, server in members(folder, blueprint):
        member.state.mkdir(exist_ok=True, mode=0o700)
        config = train_config(blueprint, spec.seed, spec.label, server)
        member.config_file.write_text(config.model_dump_json(indent=1), "utf-8")
        write_tokens(member)


def unpack_client(
    folder: AttemptFolder, spec: AttemptSpec, blueprint: Blueprint, fetch: Callable[[str], bytes]
) -> None:
    """Fetch and unpack the client's code unless it is there; its tree hash must be the blueprint's, or the revision's."""
    _unpack("client", folder.client, spec.client_artifact, client_tree(spec, blueprint), fetch)


def client_tree(spec: AttemptSpec, blueprint: Blueprint) -> str:
    """Tree hash of the client that the attempt runs: a revision's, where one replaced the blueprint's own."""
    return spec.client_tree_hash or client_of(blueprint).tree_hash


def unpack_further(
    folder: AttemptFolder, spec: AttemptSpec, blueprint: Blueprint, fetch: Callable[[str], bytes]
) -> None:
    """The code of further clients; those of the first one's tree are entries of its folder.

    Raises:
        BlueprintError: the hub does not have the code of one.
    """
    for client in blueprint.clients[1:]:
        target = code_of(folder, blueprint, client)
        if target == folder.client:
            continue
        artifact = spec.artifacts.get(f"client:{client.name}", "")
        if not artifact:
            raise BlueprintError(
                f"The code of the client {client.name!r} (tree {client.tree_hash[:12]}) was not sent.",
                hint="Clients of one blueprint share a folder, or each is the first client of some blueprint of the campaign.",
            )
        _unpack(f"client {client.name!r}", target, artifact, client.tree_hash, fetch)


def unpack_evaluator(
    folder: AttemptFolder, blueprint: Blueprint, fetch: Callable[[str], bytes]
) -> None:
    """Fetch and unpack a sealed evaluator, beside the client and never within its folder; a registered task has none."""
    evaluator = blueprint.evaluator
    if evaluator.artifact:
        _unpack("evaluator", folder.evaluator, evaluator.artifact, evaluator.source_hash, fetch)


def _unpack(
    what: str, target: Path, artifact: str, wanted: str, fetch: Callable[[str], bytes]
) -> None:
    if target.exists() and tree_hash(target) == wanted:
        return
    data = fetch(artifact)
    if bytes_hash(data) != artifact:
        raise BlueprintError(
            f"The {what}'s artifact was damaged on its way.", hint="A new attempt fetches it again."
        )
    draft = target.with_name(f"{target.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    found = unpack_tree(data, draft)
    if found != wanted:
        raise BlueprintError(
            f"The {what}'s code (tree {found[:12]}) is not what was reviewed (tree {wanted[:12]}).",
            hint="The blueprint needs a new version with this code, and a review.",
        )
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


def train_config(
    blueprint: Blueprint, seed: int, label: str, server: ServerSpec | None = None
) -> TrainConfig:
    """A server's training config with the run's seed; the first one's training waits for each of the blueprint's evaluation rounds.

    ``server``: None = the first.
    """
    first = blueprint.servers[0]
    server = server or first
    given = server.train
    if server is not first:
        return given.model_copy(update={"seed": seed, "run_name": f"{label} {server.name}"})
    rounds = (gated_step(name) for name in blueprint.evaluator.rounds if name != "final")
    steps = tuple(sorted({0, *given.eval_gate.at_steps, *rounds}))
    gate = EvalGate(at_steps=steps, deadline_s=max(GATE_DEADLINE_S, given.eval_gate.deadline_s))
    return given.model_copy(update={"seed": seed, "run_name": label, "eval_gate": gate})


def gated_step(name: str) -> int:
    """The server step of a round before the end: ``initial`` is 0, ``step-7`` is 7."""
    return int(name.removeprefix("step-")) if name.startswith("step-") else 0


def write_tokens(member: Member) -> None:
    """Mint a server's tokens: all in its tokens.json, the client's and the evaluator's alone in files of theirs."""
    path = member.tokens_file
    if not path.exists():
        write_private(path, json.dumps({role: secrets.token_urlsafe(32) for role in ROLES}))
    tokens = json.loads(path.read_text("utf-8"))
    for kind in (TRAINER, EVALUATOR):
        write_private(member.token_file(kind), tokens[kind])


def admin_token(member: Member) -> str:
    """The admin token of a server."""
    return str(json.loads(member.tokens_file.read_text("utf-8"))["admin"])
