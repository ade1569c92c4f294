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
from a3r.blueprints.model import Blueprint
from a3r.core.errors import BlueprintError
from a3r.core.hashing import bytes_hash, tree_hash
from a3r.core.wire import AttemptSpec
from a3r.worker.folder import AttemptFolder, client_of
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
    for part in (folder.server, folder.evals, folder.path / "logs", folder.path / "proc"):
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
    unpack_client(folder, spec, blueprint, fetch)
    unpack_evaluator(folder, blueprint, fetch)
    config = train_config(blueprint, spec.seed, spec.label)
    (folder.path / "train.json").write_text(config.model_dump_json(indent=1), "utf-8")
    write_tokens(folder)


def unpack_client(
    folder: AttemptFolder, spec: AttemptSpec, blueprint: Blueprint, fetch: Callable[[str], bytes]
) -> None:
    """Fetch and unpack the client's code unless it is there; its tree hash must be the blueprint's, or the revision's."""
    _unpack("client", folder.client, spec.client_artifact, client_tree(spec, blueprint), fetch)


def client_tree(spec: AttemptSpec, blueprint: Blueprint) -> str:
    """Tree hash of the client that the attempt runs: a revision's, where one replaced the blueprint's own."""
    return spec.client_tree_hash or client_of(blueprint).tree_hash


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


def train_config(blueprint: Blueprint, seed: int, label: str) -> TrainConfig:
    """The blueprint's training config with the run's seed; training waits for each of the blueprint's evaluation rounds."""
    given = blueprint.servers[0].train
    rounds = (gated_step(name) for name in blueprint.evaluator.rounds if name != "final")
    steps = tuple(sorted({0, *given.eval_gate.at_steps, *rounds}))
    gate = EvalGate(at_steps=steps, deadline_s=max(GATE_DEADLINE_S, given.eval_gate.deadline_s))
    return given.model_copy(update={"seed": seed, "run_name": label, "eval_gate": gate})


def gated_step(name: str) -> int:
    """The server step of a round before the end: ``initial`` is 0, ``step-7`` is 7."""
    return int(name.removeprefix("step-")) if name.startswith("step-") else 0


def write_tokens(folder: AttemptFolder) -> None:
    """Mint the attempt's tokens: all in the server's tokens.json, the client's and the evaluator's alone in files of theirs."""
    path = folder.server / "tokens.json"
    if not path.exists():
        write_private(path, json.dumps({role: secrets.token_urlsafe(32) for role in ROLES}))
    tokens = json.loads(path.read_text("utf-8"))
    for role in ("client", "eval"):
        write_private(folder.path / f"{role}.token", tokens[role])


def admin_token(folder: AttemptFolder) -> str:
    """The admin token of the attempt's server."""
    return str(json.loads((folder.server / "tokens.json").read_text("utf-8"))["admin"])
