import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.exposure import SetupError
from swarm.server.serve import listening, locked

SWARM = [sys.executable, "-c", "from swarm.cli import main; main()"]


def command(*args, **kwargs):
    return subprocess.run(
        [*SWARM, *args], capture_output=True, text=True, timeout=60, check=False, **kwargs
    )


@pytest.fixture
def spawn(tmp_path):
    """Start ``swarm serve`` with a ready file; returns (process, ready record)."""
    processes = []

    def start(*args, name="state"):
        ready = tmp_path / f"{name}.ready.json"
        ready.unlink(missing_ok=True)
        log = (tmp_path / f"{name}.log").open("w")
        argv = [
            *SWARM,
            "serve",
            "--port",
            "0",
            "--state-dir",
            str(tmp_path / name),
            "--ready-file",
            str(ready),
            *args,
        ]
        environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "xdg")}
        process = subprocess.Popen(argv, stderr=log, env=environ)
        processes.append((process, log))
        end = time.monotonic() + 40
        while not ready.exists():
            assert process.poll() is None, (tmp_path / f"{name}.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
        return process, json.loads(ready.read_text())

    yield start
    for process, log in processes:
        process.kill()
        process.wait()
        log.close()


def ask(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def until_rolling(url, token):
    end = time.monotonic() + 30
    while (status := ask(f"{url}/swarm/status", token))["state"] != "ROLLING":
        assert time.monotonic() < end, status
        time.sleep(0.05)
    return status


@pytest.mark.timeout(90)
def test_a_server_with_config_and_start_serves_and_ends_in_order(spawn, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(TrainConfig(engine="toy").model_dump_json())
    process, ready = spawn("--config", str(config), "--start")
    assert ready["pid"] == process.pid
    assert ready["url"] == f"http://127.0.0.1:{ready['port']}"
    tokens_file = Path(ready["state_dir"]) / "tokens.json"
    assert tokens_file.stat().st_mode & 0o777 == 0o600
    admin = json.loads(tokens_file.read_text())["admin"]
    assert until_rolling(ready["url"], admin)["failure"] is None

    second = command("serve", "--port", "0", "--state-dir", ready["state_dir"])
    assert second.returncode == 2
    assert f"in use by another server (pid {process.pid})" in second.stderr
    assert "Traceback" not in second.stderr

    request = urllib.request.Request(
        f"{ready['url']}/swarm/events", headers={"Authorization": f"Bearer {admin}"}
    )
    with urllib.request.urlopen(request, timeout=20) as stream:
        assert stream.readline().startswith(b"id: ")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert b"shut down before the answer was complete" in stream.read()
        assert process.wait(timeout=15) == 0
    assert time.monotonic() - begun < 8
    log = (tmp_path / "state.log").read_text()
    assert "Traceback" not in log, log
    assert admin not in log


@pytest.mark.timeout(90)
def test_a_killed_server_resumes_from_its_state_directory(spawn, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('engine = "toy"\nrun_name = "again"\n')
    process, ready = spawn("--config", str(config), "--start")
    admin = json.loads((Path(ready["state_dir"]) / "tokens.json").read_text())["admin"]
    before = until_rolling(ready["url"], admin)
    process.kill()
    process.wait()
    _, ready = spawn("--resume")
    after = until_rolling(ready["url"], admin)
    assert after["policy_version"] == before["policy_version"]


def test_a_taken_port_is_told_and_not_a_traceback(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = command("serve", "--port", port, "--state-dir", str(tmp_path / "s"))
    assert answer.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in answer.stderr
    assert "--port 0" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"batch": {"task": 1}}', "Did you mean 'tasks'"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_configuration_file_is_told_before_anything_starts(tmp_path, text, words):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    answer = command(
        "serve", "--port", "0", "--state-dir", str(tmp_path / "s"), "--config", str(path)
    )
    assert answer.returncode == 2
    assert words in answer.stderr
    assert not (tmp_path / "s").exists()


def test_a_state_directory_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    answer = command("serve", "--port", "0", "--state-dir", str(tmp_path / "file" / "s"))
    assert answer.returncode == 2
    assert "cannot be written" in answer.stderr


def test_the_lock_is_free_again_after_its_holder(tmp_path):
    with locked(tmp_path):
        with pytest.raises(SetupError, match=f"pid {os.getpid()}"), locked(tmp_path):
            pass
        assert (tmp_path / "server.lock").read_text() == str(os.getpid())
    with locked(tmp_path):
        pass


def test_port_zero_binds_any_port_and_a_strange_host_is_refused():
    with listening("127.0.0.1", 0) as sock:
        assert sock.getsockname()[1] > 0
    with pytest.raises(SetupError), listening("256.0.0.1", 0):
        pass


def test_help_lists_the_commands_without_importing_the_server():
    code = (
        "import sys\nfrom swarm.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'fastapi', 'uvicorn', 'torch', 'pydantic', 'aiohttp'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "serve" in answer.stdout


def test_an_unknown_command_is_wrong_usage():
    answer = command("frobnicate")
    assert answer.returncode == 2
    assert "frobnicate" in answer.stderr


@pytest.mark.timeout(90)
def test_a_restart_with_the_first_file_keeps_later_changes_and_another_file_counts(spawn, tmp_path):
    def config_of(ready):
        admin = json.loads((Path(ready["state_dir"]) / "tokens.json").read_text())["admin"]
        until_rolling(ready["url"], admin)
        return admin, ask(f"{ready['url']}/swarm/config", admin)

    first, other = tmp_path / "first.json", tmp_path / "other.json"
    first.write_text(TrainConfig(engine="toy").model_dump_json())
    other.write_text(TrainConfig(engine="toy", stop_at_step=7).model_dump_json())
    process, ready = spawn("--config", str(first), "--start")
    admin, config = config_of(ready)
    body = json.dumps(config | {"stop_at_step": 99}).encode()
    put = urllib.request.Request(
        f"{ready['url']}/swarm/config",
        data=body,
        method="PUT",
        headers={"Authorization": f"Bearer {admin}"},
    )
    with urllib.request.urlopen(put, timeout=20) as answer:
        assert [c["key"] for c in json.load(answer)] == ["stop_at_step"]
    for file, stop in ((first, 99), (other, 7)):
        process.kill()
        process.wait()
        process, ready = spawn("--config", str(file), "--resume")
        assert config_of(ready)[1]["stop_at_step"] == stop
        who = [c["who"] for c in ask(f"{ready['url']}/swarm/config/changes", admin)]
    assert who == ["admin", "serve"]
