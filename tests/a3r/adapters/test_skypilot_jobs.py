"""SkyPilot over a stand-in of its Python interface (``sky.Task``, ``sky.jobs``), which keeps its jobs in a file."""

import os
from pathlib import Path

import pytest

from a3r.adapters.skypilot_jobs import SkyPilotJobs
from a3r.core.errors import PoolRefused
from a3r.core.pools import JobAsk, PoolJobState, PoolOptions

SKY = """
import json, os, pathlib
from . import jobs
STATE = pathlib.Path(os.environ["SKY_STATE"])

class Task:
    @classmethod
    def from_yaml(cls, path):
        task = cls()
        text = pathlib.Path(path).read_text()
        task.run = "echo" if "run:" in text else None
        task.name, task.secrets = None, {}
        return task

    def update_secrets(self, secrets):
        self.secrets.update(secrets)

def get(request):
    print("SkyPilot talks")
    return request
"""
JOBS = """
import enum, json, os, pathlib
STATE = pathlib.Path(os.environ["SKY_STATE"])

class Status(enum.Enum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED_SETUP = "FAILED_SETUP"
    CANCELLED = "CANCELLED"

def _load():
    return json.loads(STATE.read_text()) if STATE.exists() else []

def launch(task, name=None):
    rows = _load()
    row = {"job_id": len(rows), "job_name": name, "status": "PENDING", "run": task.run}
    STATE.write_text(json.dumps([*rows, {**row, "secrets": task.secrets}]))

def queue(refresh, skip_finished=False, all_users=False):
    return [{**row, "status": Status(row["status"])} for row in _load()]

def cancel(name=None):
    rows = [{**r, "status": "CANCELLED"} if r["job_name"] == name else r for r in _load()]
    STATE.write_text(json.dumps(rows))
"""
ASK = JobAsk("pj-1", ("python", "-m", "a3r"), {"A3R_POOL_TICKET": "t"})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "jobs.json"


@pytest.fixture
def engine(tmp_path: Path, state: Path) -> SkyPilotJobs:
    package = tmp_path / "lib" / "sky"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SKY)
    (package / "jobs.py").write_text(JOBS)
    task = tmp_path / "task.yaml"
    task.write_text("resources: {accelerators: H100:1}\n")
    environ = {**os.environ, "PYTHONPATH": str(package.parent), "SKY_STATE": str(state)}
    return SkyPilotJobs(PoolOptions(task_file=str(task)), environ)


def test_a_managed_job_is_launched_once_with_our_command_and_its_ticket_as_a_secret(
    engine: SkyPilotJobs, state: Path
) -> None:
    assert engine.submit(ASK) == engine.submit(ASK) == "pj-1"
    text = state.read_text()
    assert text.count("job_name") == 1
    assert '"run": "exec python -m a3r"' in text
    assert '"A3R_POOL_TICKET": "t"' in text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("PENDING", PoolJobState.QUEUED),
        ("RUNNING", PoolJobState.STARTING),
        ("SUCCEEDED", PoolJobState.ENDED),
        ("FAILED_SETUP", PoolJobState.FAILED),
    ],
)
def test_its_states_are_understood(
    engine: SkyPilotJobs, state: Path, word: str, expected: PoolJobState
) -> None:
    engine.submit(ASK)
    state.write_text(state.read_text().replace("PENDING", word))
    found = engine.look({"pj-1": "pj-1", "pj-2": "pj-2"})
    assert [(k, v.state) for k, v in found.items()] == [("pj-1", expected)]


def test_a_job_is_cancelled_by_name(engine: SkyPilotJobs) -> None:
    engine.submit(ASK)
    engine.stop(["pj-1", "pj-unknown"])
    assert engine.look({"pj-1": "pj-1"})["pj-1"].detail == "CANCELLED"


def test_a_task_that_runs_something_itself_is_refused(engine: SkyPilotJobs, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("run: echo\n")
    with pytest.raises(PoolRefused, match="has a 'run'"):
        engine.submit(ASK)


def test_without_skypilot_a_person_is_told(tmp_path: Path) -> None:
    engine = SkyPilotJobs(PoolOptions(task_file=str(tmp_path / "t.yaml")), dict(os.environ))
    with pytest.raises(PoolRefused, match="not installed"):
        engine.submit(ASK)
