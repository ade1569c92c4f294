"""Each logger through its own library, offline, from the command line: killed half way, started again, read back.

Every library that is installed is tested; the others are skipped by name.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from swarm.client import SwarmClient
from swarm.testing.live_server import LiveServer, live_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
MAIN = "from swarm.cli import main; main()"
STEPS = 4
READ_BACK = Path(__file__).with_name("read_back.py")


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / "state") as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Generator[SwarmClient]:
    with SwarmClient(server.url, server.tokens.admin) as one:
        batch = {"tasks": 1, "repeat": 2, "drain_deadline_s": 0.2}
        one.configure({"engine": "toy", "stop_at_step": STEPS, "batch": batch})
        one.start()
        yield one


def play(client: SwarmClient, steps: int) -> None:
    for _ in range(steps):
        step = client.status().step
        for reward in (0.0, float(step + 1)):
            with client.episode(f"t{step}") as episode:
                episode.chat([{"role": "user", "content": "hi"}])
                episode.finish(reward)
        client.wait_step(step, 20)


def environ(server: LiveServer, tmp_path: Path, **more: str) -> dict[str, str]:
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("SWARM_", "WANDB_", "MLFLOW_"))
    }
    own = {
        "HOME": str(tmp_path / "home"),
        "SWARM_TOKEN": server.tokens.client,
        "SWARM_URL": server.url,
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }
    (tmp_path / "home").mkdir(exist_ok=True)
    return {**clean, **own, **more}


def command(name: str, folder: Path, *args: str) -> list[str]:
    options = [
        "log",
        "--to",
        name,
        "--dir",
        str(folder),
        "--project",
        "proj",
        "--offline",
        "--json",
    ]
    return [sys.executable, "-c", MAIN, *options, *args]


def run(
    name: str, folder: Path, env: dict[str, str], cwd: Path, *args: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name, folder, *args),
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def rows_of(name: str, folder: Path, run_id: str, env: dict[str, str]) -> list[tuple[int, float]]:
    """(step, mean reward) of every record, in the order of the files, as the library itself reads them."""
    done = subprocess.run(
        [sys.executable, str(READ_BACK), name, str(folder), run_id],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(params=["tensorboard", "wandb", "swanlab", "mlflow", "trackio"])
def name(request: pytest.FixtureRequest) -> str:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


def test_a_run_is_written_whole_and_once_over_an_orderly_restart(
    server: LiveServer, client: SwarmClient, name: str, tmp_path: Path
) -> None:
    folder, env = tmp_path / "lög é", environ(server, tmp_path)
    play(client, 2)
    first = run(name, folder, env, tmp_path, "--once")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert (document["written"], document["last_step"], document["logger"]) == (2, 2, name)
    play(client, STEPS - 2)
    second = run(name, folder, env, tmp_path)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["written"] == STEPS - 2
    nothing = run(name, folder, env, tmp_path)
    assert json.loads(nothing.stdout)["written"] == 0
    rows = rows_of(name, folder, document["run_id"], env)
    assert rows == [(step, step / 2) for step in range(1, STEPS + 1)]
    left = {path.name for path in tmp_path.iterdir()} - {"state", "home", "lög é", "trackio"}
    assert left == set()  # nothing lands where the command was started


def test_a_logger_that_was_killed_goes_on_without_doubling_or_losing(
    server: LiveServer, client: SwarmClient, name: str, tmp_path: Path
) -> None:
    folder, env = tmp_path / "log", environ(server, tmp_path)
    play(client, 1)
    with subprocess.Popen(
        command(name, folder), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True, env=env, cwd=tmp_path, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        line = ""
        while "step 2 written" not in line:
            line = process.stderr.readline()
            assert line, "the logger ended"
            if "step 1 written" in line:
                play(client, 1)
        os.kill(process.pid, signal.SIGKILL)
    play(client, STEPS - 2)
    last = run(name, folder, env, tmp_path)
    assert last.returncode == 0, last.stderr
    rows = rows_of(name, folder, json.loads(last.stdout)["run_id"], env)
    assert sorted(rows) == [(step, step / 2) for step in range(1, STEPS + 1)]


def test_a_library_that_is_missing_is_named_with_its_extra(
    server: LiveServer, client: SwarmClient, tmp_path: Path
) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent/trackio.py").write_text("raise ImportError('No module named trackio')")
    env = environ(server, tmp_path, PYTHONPATH=str(tmp_path / "absent"))
    done = run("trackio", tmp_path / "log", env, tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["hint"] == "pip install 'a3r[trackio]'."


def test_an_unknown_logger_lists_the_known_ones(tmp_path: Path) -> None:
    done = run("paper", tmp_path, dict(os.environ), tmp_path)
    assert done.returncode == 2
    assert "tensorboard" in done.stdout + done.stderr  # with --json an error is the document
