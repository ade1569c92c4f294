"""What is started in each role of an attempt: argv and spec files. No secrets in argv: tokens are named by their files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a3r.blueprints.model import Blueprint, ClientSpec, SandboxSpec, ServerSpec
from a3r.core.wire import AttemptSpec
from a3r.sandbox.scoring import WALLS, enclosed_scoring
from a3r.worker.deadlines import evaluation_limit_s
from a3r.worker.environments import Environments
from a3r.worker.evaluator import EvaluatorSpec
from a3r.worker.folder import AttemptFolder, Memo, client_of
from a3r.worker.members import (
    EVALUATOR,
    client_role,
    code_of,
    member_of,
    members,
    server_of,
    share_gpus,
    token_kind,
)
from a3r.worker.places import Place, Placed, put, write_record
from a3r.worker.prepare import client_tree
from a3r.worker.processes import Launcher, Process
from a3r.worker.site_settings import site_settings
from a3r.worker.supervisor import write_json

CLIENT_GRACE_S = 5.0
SERVER_GRACE_S = 10.0
"""A server closes its journal and its engine in order."""


@dataclass(frozen=True)
class Starter:
    """Starts the processes of one attempt."""

    folder: AttemptFolder
    spec: AttemptSpec
    blueprint: Blueprint
    launcher: Launcher

    @property
    def environments(self) -> Environments:
        """Those of this host."""
        return Environments(self.folder.path.parents[1], self.launcher.environ)

    def environment(self, role: str, recipe: dict[str, Any]) -> Process:
        """Makes a venv; ``recipe`` as of ``Environments.recipe``."""
        told = self.folder.path / f"{role}.json"
        write_json(told, recipe)
        argv = [sys.executable, "-P", "-m", "a3r.worker.venv_build", str(told)]
        return self._start(role, Placed(argv, {}, {}), cwd=self.folder.path)

    def server(self, memo: Memo, server: ServerSpec) -> Process:
        """A swarm server; a later start takes up the journal, and the same port."""
        member = member_of(self.folder, self.blueprint, server)
        # A former start's record may name a port that is somebody else's by now, who must not be sent our token.
        member.ready_file.unlink(missing_ok=True)
        port = memo.where(member.name).port or 0
        argv = [
            *("-P", "-m", "swarm.cli", "serve"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--state-dir", str(member.state)),
            *("--config", str(member.config_file)),
            *("--ready-file", str(member.ready_file)),
            *("--start", "--resume"),
        ]
        model = Path(server.train.model.path).expanduser()
        place = Place(
            role=member.role,
            need="server",
            ready=self.environments.ready(server.environment),
            cwd=self.folder.path,
            nonce=self.spec.nonce,
            readable=[model] if model.is_absolute() else [],
            writable=[self.folder.path],
            gpus=share_gpus(self.blueprint, self.spec.gpus)[server.name],
        )
        placed = put(self.folder, self.environments, place, argv)
        site = site_settings(self.launcher.environ)
        placed.env.update({k: v for k, v in site.items() if k not in placed.env})
        placed.env.update(memo.extra_env.get(member.role, {}))
        return self._start(member.role, placed, cwd=self.folder.path, grace_s=SERVER_GRACE_S)

    def client(self, memo: Memo, client: ClientSpec) -> Process:
        """A client in train mode."""
        role = client_role(self.blueprint, client)
        told = self.folder.path / f"{role}.json"
        servers = self._servers(memo)
        spec = {
            **servers[server_of(self.blueprint, client).name],
            "mode": "train",
            "seed": self.spec.seed,
            "arguments": client.arguments,
            "servers": servers,
        }
        write_json(told, spec)
        work = self.folder.path / "work" / client.name
        tokens = [Path(server["token_file"]) for server in servers.values()]
        placed = self._put_client(role, client, told, work, [told, *tokens], memo)
        return self._start(role, placed, cwd=code_of(self.folder, self.blueprint, client))

    def _servers(self, memo: Memo, kind: str = "") -> dict[str, dict[str, str]]:
        """Name -> where each server is, and the file with the token for it; ``kind``: empty = what its clients may have."""
        return {
            server.name: {
                "url": memo.where(member.name).url,
                "token_file": str(member.token_file(kind or token_kind(server))),
            }
            for member, server in members(self.folder, self.blueprint)
        }

    def _put_client(
        self,
        role: str,
        client: ClientSpec,
        told: Path,
        work: Path,
        seen: Sequence[Path],
        memo: Memo,
    ) -> Placed:
        """A client's code in its environment and behind its walls; it sees its code and what is ``seen``."""
        code = code_of(self.folder, self.blueprint, client)
        ports = [memo.where(m.name).port for m, _ in members(self.folder, self.blueprint)]
        place = Place(
            role=role,
            need="client",
            ready=self.environments.ready(client.environment, self.blueprint.secret_names),
            cwd=code,
            nonce=self.spec.nonce,
            sandbox=client.sandbox,
            work=work,
            readable=[code, *seen],
            ports=[port for port in ports if port],
        )
        command = [str(code / client.entry), str(told)]
        return put(self.folder, self.environments, place, command)

    def evaluator(self, memo: Memo, name: str) -> Process:
        """The sealed evaluator of a round: of the first server, by the first client's agent."""
        told, role = self.folder.evals / f"spec-{name}.json", f"evaluator-{name}"
        work, client = self.folder.evals / name, client_of(self.blueprint)
        servers = self._servers(memo, EVALUATOR)
        tokens = [Path(server["token_file"]) for server in servers.values()]
        # The agent's process is the client's code; it is started by the evaluator, with the client's secrets.
        agent = self._put_client(role, client, work / "agent.json", work, tokens, memo)
        spec = self.evaluator_spec(memo, name)
        changes = {"agent": agent.argv, "agent_env": agent.env, "servers": servers}
        spec = spec.model_copy(update={**changes, **self._scorer(name, client.sandbox)})
        write_json(told, spec.model_dump(mode="json"))
        argv = [sys.executable, "-P", "-m", "a3r.worker.evaluator", str(told)]
        placed = Placed(argv, {}, agent.secrets)
        limit = evaluation_limit_s(self.blueprint.limits)
        return self._start(role, placed, cwd=self.folder.path, max_time_s=limit)

    def _scorer(self, name: str, sandbox: SandboxSpec) -> dict[str, Any]:
        """A sealed evaluator's process behind walls of its own, as strict as the client's; a registered task is our own code."""
        if not self.blueprint.evaluator.artifact:
            return {}
        walls = WALLS.model_copy(update={"mode": sandbox.mode})
        scratch = self.folder.path / "walls" / f"scoring-{name}"
        made = enclosed_scoring(self.folder.evaluator, scratch, walls)
        write_record(self.folder, "scoring", {"sandbox": made.record.model_dump()})
        return {"scorer": made.argv, "scorer_env": made.env}

    def evaluator_spec(self, memo: Memo, name: str) -> EvaluatorSpec:
        """The file that the evaluator is given."""
        client, evaluator = client_of(self.blueprint), self.blueprint.evaluator
        return EvaluatorSpec(
            url=memo.url,
            token_file=str(self.folder.path / "eval.token"),
            round=name,
            close_gate=name != "final",
            fencing_token=self.spec.fencing_token,
            task=evaluator.task,
            items=evaluator.items,
            item_seed=evaluator.item_seed,
            item_set_hash=evaluator.item_set_hash,
            source_hash=evaluator.source_hash,
            evaluator_dir=str(self.folder.evaluator) if evaluator.artifact else "",
            client_dir=str(self.folder.client),
            client_tree_hash=client_tree(self.spec, self.blueprint),
            entry=client.entry,
            arguments=client.arguments,
            seed=self.spec.seed,
            work_dir=str(self.folder.evals / name),
            out_file=str(self.folder.eval_file(name)),
        )

    def _start(
        self,
        role: str,
        placed: Placed,
        *,
        cwd: Path,
        max_time_s: float | None = None,
        grace_s: float = CLIENT_GRACE_S,
    ) -> Process:
        log = next((r for r in ("evaluator", "environment") if role.startswith(r)), role)
        return self.launcher.start(
            self.folder.next_process(role),
            placed.argv,
            cwd=cwd,
            log=self.folder.log(log),
            nonce=self.spec.nonce,
            session=self.folder.session,
            max_time_s=max_time_s,
            grace_s=grace_s,
            env=placed.env,
            secrets=placed.secrets,
        )
