"""Pools from the command line to a finished run: submitit's local executor and a local Ray cluster, both real."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from a3r.adapters.ray_jobs import RayJobs
from a3r.cli.daemon.starting import ensure_daemon
from a3r.core.errors import PoolUnavailable
from a3r.core.pools import PoolOptions
from a3r.core.types import FailureClass
from a3r.core.workspace import Workspace
from a3r.pools.options import ray_address
from a3r.testing.waiting import retry_until
from swarm.testing.chaos.processes import free_port

Json = dict[str, Any]
LONG_S = 480


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where workers of a pool have their workspaces; whatever lives there at the end is ended."""
    monkeypatch.setenv("A3R_POOLS_S", "0.5")
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    end_all_below(folder)


def pool(workspace: Workspace, name: str) -> Json:
    with ensure_daemon(workspace) as client:
        return client.get(f"pools/{name}")


def runs_of(workspace: Workspace, campaign: str) -> list[Json]:
    with ensure_daemon(workspace) as client:
        return client.get(f"campaigns/{campaign}/runs")["runs"]


def started(a3r: Any, goal: Path) -> str:
    told = a3r("campaign", "start", str(goal), "--review", "none", "--no-watch", "--json")
    assert told.code == 0, told.out
    return told.json["campaign"]["id"]


def some_succeeded(workspace: Workspace, campaign: str) -> bool:
    return any(r["state"] == "succeeded" for r in runs_of(workspace, campaign))


def working_job(workspace: Workspace, name: str) -> Json | None:
    jobs = [j for j in pool(workspace, name)["jobs"] if j["state"] == "working" and j["attempts"]]
    return jobs[0] if jobs else None


def lost_to_the_scheduler(workspace: Workspace, campaign: str) -> bool:
    with ensure_daemon(workspace) as client:
        attempts = [
            attempt
            for run in runs_of(workspace, campaign)
            for attempt in client.get(f"runs/{run['id']}")["attempts"]
        ]
    return any(a["failure"] == FailureClass.SCHEDULER.value for a in attempts)


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
def test_submitits_local_executor_brings_a_worker_that_ends_when_idle(
    a3r: Any, workspace: Workspace, goal: Path, scratch: Path
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    options = ["--max-workers", "1", "--idle-exit-s", "3", "--scratch", str(scratch)]
    assert a3r("pool", "add", "here", "local", *options).code == 0
    assert a3r("pool", "list").out.split()[-3:] == ["0", "0", "1"]
    campaign = started(a3r, goal)
    retry_until(lambda: some_succeeded(workspace, campaign), 150, "a run succeeds")
    shown = a3r("pool", "show", "here")
    assert "working" in shown.out
    assert "(pool here)" in a3r("worker", "list").out
    assert a3r("campaign", "stop", campaign).code == 0
    retry_until(lambda: pool(workspace, "here")["jobs"][-1]["state"] == "ended", 60, "it is idle")
    retry_until(lambda: not list(scratch.iterdir()), what="its workspace is cleared away")
    assert a3r("pool", "remove", "here").code == 0
    retry_until(lambda: a3r("pool", "list").out == "no pool yet\n", what="the pool is gone")


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
def test_what_a_killed_job_had_is_tried_again_by_the_next(
    a3r: Any,
    workspace: Workspace,
    goal: Path,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("A3R_LEASE_S", "3")
    options = ["--max-workers", "1", "--idle-exit-s", "60", "--scratch", str(scratch)]
    assert a3r("pool", "add", "here", "local", *options).code == 0
    campaign = started(a3r, goal)
    job = retry_until(lambda: working_job(workspace, "here"), 90, "a worker works")
    # As a cluster does it: the job's whole tree, at once, without a word.
    head = psutil.Process(int(job["external_id"]))
    for process in [head, *head.children(recursive=True)]:
        process.kill()
    retry_until(lambda: lost_to_the_scheduler(workspace, campaign), 60, "the attempt is given up")
    retry_until(lambda: working_job(workspace, "here"), 90, "another worker took it")
    assert a3r("pool", "remove", "here", "--now").code == 0
    retry_until(lambda: a3r("pool", "list").out == "no pool yet\n", 60, "the pool is gone")


@pytest.mark.long
def test_a_pool_whose_machines_lack_a3r_says_so(
    a3r: Any, workspace: Workspace, goal: Path, scratch: Path
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    options = ["--python", sys.executable + "-not", "--scratch", str(scratch)]
    assert a3r("pool", "add", "here", "local", *options).code == 0
    started(a3r, goal)
    found = retry_until(lambda: pool(workspace, "here")["detail"], 60, "it is told")
    assert "brought no worker" in found


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A local Ray of one node with the token that it asks for: address and token file."""
    pytest.importorskip("ray.dashboard.modules.job", reason="ray[default] is not installed")
    ray = shutil.which("ray", path=str(Path(sys.executable).parent))
    if ray is None:
        pytest.skip("the ray command is not there")
    # Short: Ray's sockets lie in it, and a socket's path is short.
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    token = folder / "token"
    token.write_text("t" * 64)
    environ = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    port = free_port()
    ports = ["--port=0", f"--dashboard-port={port}", "--min-worker-port=0", "--max-worker-port=0"]
    ports += [f"--ray-client-server-port={free_port()}", "--dashboard-agent-listen-port=0"]
    command = [ray, "start", "--head", "--block", "--node-ip-address=127.0.0.1", *ports]
    command += ["--num-cpus=2", "--disable-usage-stats", f"--temp-dir={folder / 'r'}"]
    with (folder / "log").open("wb") as log:
        head = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        address = f"ray://127.0.0.1:{port}"
        retry_until(lambda: head.poll() is not None or answers(address, token), 90, "Ray is up")
        assert head.poll() is None, (folder / "log").read_text()
        yield address, token
    finally:
        head.kill()
        head.wait()
        end_all_below(folder)  # Ray's processes are in sessions of their own, and name its folder
        shutil.rmtree(folder, ignore_errors=True)


def ray_engine(address: str, token: Path) -> RayJobs:
    return RayJobs(PoolOptions(address=ray_address(address), token_file=str(token)))


def answers(address: str, token: Path) -> bool:
    """Whether the job server takes questions."""
    try:
        return ray_engine(address, token).look({"nobody": ""}) == {}
    except PoolUnavailable:
        return False


def end_all_below(folder: Path) -> None:
    """End every process whose command line names the folder."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in part for part in process.info["cmdline"] or []):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
def test_a_ray_cluster_brings_workers_and_taking_one_back_costs_only_its_attempt(
    a3r: Any,
    workspace: Workspace,
    goal: Path,
    scratch: Path,
    ray_cluster: tuple[str, Path],
) -> None:
    address, token = ray_cluster
    options = ["--max-workers", "1", "--idle-exit-s", "60", "--scratch", str(scratch)]
    options += ["--token-file", str(token), "--python", sys.executable]
    assert a3r("pool", "add", "ray", address, *options).code == 0
    campaign = started(a3r, goal)
    job = retry_until(lambda: working_job(workspace, "ray"), 150, "a worker works")
    assert job["external_id"] == job["id"]
    ray_engine(address, token).stop([job["id"]])
    retry_until(lambda: lost_to_the_scheduler(workspace, campaign), 90, "it reports its end")
    retry_until(lambda: some_succeeded(workspace, campaign), 150, "the next one succeeds")
    assert a3r("pool", "remove", "ray", "--now").code == 0
    retry_until(lambda: a3r("pool", "list").out == "no pool yet\n", 60, "the pool is gone")
