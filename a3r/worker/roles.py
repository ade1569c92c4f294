"""What is started in each role of an attempt: argv and spec files. No secrets in argv: tokens are named by their files."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from a3r.blueprints.model import Blueprint
from a3r.core.wire import AttemptSpec
from a3r.worker.evaluator import EvaluatorSpec
from a3r.worker.folder import AttemptFolder, Memo, client_of
from a3r.worker.prepare import client_tree
from a3r.worker.processes import Launcher, Process
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

    def server(self, memo: Memo) -> Process:
        """The swarm server; a later start takes up the journal, and the same port."""
        ready = self.folder.path / "ready.json"
        # A former start's record may name a port that is somebody else's by now, who must not be sent our token.
        ready.unlink(missing_ok=True)
        argv = [
            *(sys.executable, "-P", "-m", "swarm.cli", "serve"),
            *("--host", "127.0.0.1", "--port", str(memo.port or 0)),
            *("--state-dir", str(self.folder.server)),
            *("--config", str(self.folder.path / "train.json")),
            *("--ready-file", str(ready)),
            *("--start", "--resume"),
        ]
        return self._start("server", argv, grace_s=SERVER_GRACE_S)

    def client(self, memo: Memo) -> Process:
        """The client in train mode."""
        client = client_of(self.blueprint)
        told = self.folder.path / "client.json"
        spec = {
            "url": memo.url,
            "token_file": str(self.folder.path / "client.token"),
            "mode": "train",
            "seed": self.spec.seed,
            "arguments": client.arguments,
        }
        write_json(told, spec)
        argv = [sys.executable, str(self.folder.client / client.entry), str(told)]
        return self._start("client", argv)

    def evaluator(self, memo: Memo, name: str) -> Process:
        """The sealed evaluator of a round."""
        told = self.folder.evals / f"spec-{name}.json"
        write_json(told, self.evaluator_spec(memo, name).model_dump(mode="json"))
        argv = [sys.executable, "-P", "-m", "a3r.worker.evaluator", str(told)]
        limit = self.blueprint.limits.stall_deadline_s
        return self._start(f"evaluator-{name}", argv, max_time_s=limit)

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
        argv: list[str],
        *,
        max_time_s: float | None = None,
        grace_s: float = CLIENT_GRACE_S,
    ) -> Process:
        log = "evaluator" if role.startswith("evaluator") else role
        return self.launcher.start(
            self.folder.next_process(role),
            argv,
            cwd=self.folder.path if role != "client" else self.folder.client,
            log=self.folder.log(log),
            nonce=self.spec.nonce,
            session=self.folder.session,
            max_time_s=max_time_s,
            grace_s=grace_s,
        )
