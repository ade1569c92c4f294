"""Real supervisors over small programs, and waiting without sleeping blindly."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from a3r.blueprints.model import Blueprint, ClientSpec, EvaluatorSpec, Limits, ServerSpec
from a3r.blueprints.tasks import scored_task
from a3r.core.hashing import tree_hash
from a3r.core.wire import AttemptSpec, ClaimRequest
from a3r.testing.fake_hub import FakeHub
from a3r.testing.waiting import retry_until as until
from a3r.worker import supervisor
from a3r.worker.folder import AttemptFolder
from a3r.worker.identity import inventory
from a3r.worker.job import WorkerSettings
from a3r.worker.processes import Launcher, Process, read_json, supervisor_argv, sweep
from a3r.worker.worker import Worker
from swarm.protocol.config import TrainConfig


@pytest.fixture
def nonce():
    """A nonce of one test; whatever still carries it at the end is killed."""
    value = f"test-{os.urandom(8).hex()}"
    yield value
    sweep({supervisor.NONCE: value}, 0.2)


class Bench:
    """Starts programs under supervision in a folder of their own."""

    def __init__(self, folder: Path, nonce: str, launcher: Launcher):
        self.folder, self.nonce, self.launcher = folder, nonce, launcher

    def start(self, code, *, name="client.1", **options) -> Process:
        """Start ``python -c code``."""
        argv = [sys.executable, "-c", code] if isinstance(code, str) else code
        return self.launcher.start(
            self.folder / "proc" / name,
            argv,
            cwd=self.folder,
            log=self.log(name.rpartition(".")[0]),
            nonce=self.nonce,
            session="a3r-test",
            **options,
        )

    def log(self, role="client") -> Path:
        return self.folder / "logs" / f"{role}.log"

    def ended(self, process, timeout_s=60.0):
        """The exit record."""
        until(lambda: (process.folder / "exit.json").exists(), timeout_s, "exit record")
        return json.loads((process.folder / "exit.json").read_text())

    def child(self, process):
        """pid of the supervised program."""
        until(lambda: (process.folder / "start.json").exists(), what="start record")
        return json.loads((process.folder / "start.json").read_text())

    def piped(self, process_folder):
        """Run the supervisor of a spec in the foreground with its output in a pipe."""
        return subprocess.Popen(supervisor_argv(process_folder), stdout=subprocess.PIPE)


@pytest.fixture
def bench(tmp_path, nonce):
    folder = tmp_path / "ein Ordner é ✓"
    folder.mkdir()
    return Bench(folder, nonce, Launcher(None, os.environ))


class Lab:
    """A hub in memory, blueprints over the toy engine, and workers in threads."""

    def __init__(self, home: Path, nonce: str):
        self.home, self.nonce = home, nonce
        self.hub = FakeHub(heartbeat_s=0.3)
        self.workers: list[Worker] = []
        client = home.parent / "code"
        client.mkdir()
        shutil.copy(Path(__file__).parent / "sample_client.py", client / "client.py")
        self.tree = tree_hash(client)
        self.artifact = self.hub.put_artifact(packed(client))

    def blueprint(
        self, *, steps=2, items=4, engine="toy", limits=None, on_failure="restart", **arguments
    ):
        train = {
            "engine": engine,
            "batch": {"tasks": 2, "repeat": 2},
            "sampling": {"max_response_tokens": 8},
            "checkpoint": {"every_steps": 1},
            "stop_at_step": steps,
        }
        task = scored_task("calculator")
        return Blueprint(
            name="s1-b2",
            purpose="test",
            factors={"train_batch_size": 2},
            servers=(ServerSpec(train=TrainConfig.model_validate(train)),),
            clients=(
                ClientSpec(
                    template="sample",
                    tree_hash=self.tree,
                    arguments={"held_out_items": items, **arguments},
                    on_failure=on_failure,
                ),
            ),
            evaluator=EvaluatorSpec(
                task="calculator",
                items=items,
                item_set_hash=task.items_hash(task.items(items, 0)),
                source_hash=task.source_hash(),
            ),
            seeds=(5,),
            limits=Limits.model_validate(
                {
                    "max_time_s": 60,
                    "first_step_deadline_s": 30,
                    "stall_deadline_s": 30,
                    **(limits or {}),
                }
            ),
        )

    def spec(self, blueprint, name="a-0000001") -> AttemptSpec:
        return AttemptSpec(
            attempt_id=name,
            run_id="r-1",
            campaign_id="c-1",
            label=f"{blueprint.name} seed 5",
            ordinal=1,
            nonce=self.nonce,
            fencing_token=0,
            lease_s=15,
            seed=5,
            blueprint=blueprint.model_dump(mode="json"),
            client_artifact=self.artifact,
        )

    def queue(self, blueprint, name="a-0000001", **changes):
        return self.hub.queue(self.spec(blueprint, name).model_copy(update=changes))

    def worker_process(self, attempt) -> subprocess.Popen:
        """A worker with a hub of its own in another process; it gets ``attempt``, which our hub counts as leased."""
        claimed = self.hub.claim(ClaimRequest(worker_id="w-1", free_slots=1))
        assert claimed == attempt.spec
        code = (
            "import os, sys, time\nfrom pathlib import Path\n"
            "from a3r.core.wire import AttemptSpec\nfrom a3r.testing.fake_hub import FakeHub\n"
            "from a3r.worker.job import WorkerSettings\nfrom a3r.worker.worker import Worker\n"
            "hub = FakeHub(); hub.put_artifact(Path(sys.argv[2]).read_bytes())\n"
            "hub.queue(AttemptSpec.model_validate_json(sys.argv[3]))\n"
            "settings = WorkerSettings(Path(sys.argv[1]), 'w-1', 'host', os.getpid(), 1, tick_s=0.15)\n"
            "Worker(settings, hub, None, os.environ).start(); time.sleep(600)\n"
        )
        tar = self.home.parent / "client.tar"
        tar.write_bytes(self.hub.artifacts[self.artifact])
        argv = [str(self.home), str(tar), attempt.spec.model_dump_json()]
        return subprocess.Popen([sys.executable, "-c", code, *argv])

    until = staticmethod(until)

    def worker(self, terminal=None, slots=2, gpus=None) -> Worker:
        found = inventory(self.home, gpus)
        settings = WorkerSettings(
            self.home, "w-1", "host", os.getpid(), slots, found, tick_s=0.15, gpus=gpus
        )
        worker = Worker(settings, self.hub, terminal, os.environ)
        self.workers.append(worker)
        worker.start()
        return worker

    def folder(self, name="a-0000001") -> AttemptFolder:
        return AttemptFolder(self.home / "runs" / name)

    def finished(self, attempt, timeout_s=40.0):
        """The finish report that the hub got."""

        def look():
            if attempt.finish is None and time.monotonic() > ends:
                raise AssertionError(self.story(attempt))
            return attempt.finish

        ends = time.monotonic() + timeout_s
        return until(look, timeout_s + 1)

    def story(self, attempt):
        """What happened, for a failing test."""
        folder = self.folder(attempt.spec.attempt_id)
        events = [f"{e.actor} {e.kind} {e.data}" for e in folder.events()]
        logs = [
            p.read_text(errors="replace")[-3000:] for p in sorted((folder.path / "logs").glob("*"))
        ]
        return "\n".join([*events, *logs])

    def pid(self, role, name="a-0000001", which="child"):
        """pid of the newest start of a role."""
        process = until(lambda: self.folder(name).latest(role))
        record = until(lambda: read_json(process.folder / "start.json"))
        return record[which]["pid"]


def packed(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return out.getvalue()


@pytest.fixture
def lab(tmp_path, nonce):
    home = tmp_path / "Ort mit Ü" / ".a3r"
    home.mkdir(parents=True)
    lab = Lab(home, nonce)
    yield lab
    for worker in lab.workers:
        worker.stop_attempts("the test is over", 10)
        worker.leave()
