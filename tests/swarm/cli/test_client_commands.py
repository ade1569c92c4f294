"""status, config, exec and debug as a shell sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from swarm.cli.edge import read_token
from swarm.cli.settings import read_settings, validated
from swarm.client import SwarmClient
from swarm.protocol.errors import AuthError, ConfigError
from swarm.testing.live_server import LiveServer, live_server

MAIN = "from swarm.cli import main; main()"


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / ".swarm") as live:
        yield live


def swarm(*args: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SWARM_")}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean, **environ},
        timeout=60,
        check=False,
    )


def test_status_answers_a_person_and_a_program(server: LiveServer, tmp_path: Path) -> None:
    # The token is found where `swarm serve` puts it, the address comes from the environment.
    human = swarm("status", cwd=tmp_path, SWARM_URL=server.url)
    assert human.returncode == 0, human.stderr
    assert "state           OFFLINE" in human.stdout
    machine = swarm("status", "--server", server.url, "--json", cwd=tmp_path)
    assert json.loads(machine.stdout)["state"] == "OFFLINE"


def test_failures_have_codes_hints_and_one_document(server: LiveServer, tmp_path: Path) -> None:
    away = swarm("status", "--server", "http://127.0.0.1:1", "--timeout-s", "0.3", cwd=tmp_path)
    assert (away.returncode, away.stdout) == (3, "")
    assert away.stderr.startswith("error: ")
    assert "\nhint: " in away.stderr
    refused = swarm("status", "--server", server.url, "--json", cwd=tmp_path, SWARM_TOKEN="wrong")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "auth_failed"
    assert "Traceback" not in refused.stderr + away.stderr


def test_config_is_shown_checked_and_set(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("engine: toy\noptimizer: {lr: 1e-3}\n")
    first = swarm(
        "config", "set", "run.yaml", "batch.tasks=2", "--json", cwd=tmp_path, SWARM_URL=server.url
    )
    assert first.returncode == 0, first.stderr
    assert "optimizer.lr" in {c["key"] for c in json.loads(first.stdout)}
    second = swarm("config", "set", "batch.repeat=3", cwd=tmp_path, SWARM_URL=server.url)
    assert second.stdout == "batch.repeat: 4 -> 3\n"
    shown = swarm("config", "show", "--json", cwd=tmp_path, SWARM_URL=server.url)
    config = json.loads(shown.stdout)
    assert config["optimizer"]["lr"] == 1e-3
    assert (config["batch"]["tasks"], config["batch"]["repeat"]) == (2, 3)
    wrong = swarm("config", "check", "batch.tsks=2", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "batch.tsks" in wrong.stderr


def test_exec_leaves_by_documented_codes(server: LiveServer, tmp_path: Path) -> None:
    with SwarmClient(server.url, server.tokens.admin) as client:
        client.configure({"engine": "toy", "batch": {"tasks": 1, "repeat": 8}})
        client.start()
    base = ("exec", "--server", server.url, "--task-id", "t")
    python = ("--", sys.executable, "-c")
    good = swarm(*base, *python, "print('hi'); print('{\"reward\": 1}')", cwd=tmp_path)
    assert (good.returncode, good.stdout) == (0, 'hi\n{"reward": 1}\n')
    document = swarm(*base, "--json", "--eval", *python, "print('hi')", cwd=tmp_path)
    assert json.loads(document.stdout)["accepted"] is True
    assert document.stderr.startswith("hi\n")
    assert swarm(*base, *python, "raise SystemExit(9)", cwd=tmp_path).returncode == 9
    assert swarm(*base, *python, "pass", cwd=tmp_path).returncode == 122
    slow = swarm(*base, "--timeout-s", "0.2", *python, "import time; time.sleep(60)", cwd=tmp_path)
    assert slow.returncode == 124
    missing = swarm(*base, "--", "no-such-program", cwd=tmp_path)
    assert missing.returncode == 127
    assert "hint:" in missing.stderr
    assert swarm(*base, "--", "true", cwd=tmp_path, SWARM_TOKEN="no").returncode == 121


def test_exec_gives_the_program_its_episode_and_not_the_token(
    server: LiveServer, tmp_path: Path
) -> None:
    with SwarmClient(server.url, server.tokens.admin) as client:
        client.configure({"engine": "toy"})
        client.start()
    code = "import os; print(*(k for k in os.environ if k.startswith(('SWARM', 'OPENAI', 'ANTHROPIC'))))"
    args = ("exec", "--server", server.url, "--task-id", "t", "--eval")
    done = swarm(
        *args, "--", sys.executable, "-c", code, cwd=tmp_path, SWARM_TOKEN=server.tokens.eval
    )
    assert done.returncode == 0, done.stderr
    seen = "ANTHROPIC_API_KEY ANTHROPIC_BASE_URL OPENAI_API_BASE OPENAI_API_KEY OPENAI_BASE_URL SWARM_EPISODE_ID SWARM_TASK_ID"
    assert sorted(done.stdout.split()) == seen.split()


def test_debug_prints_the_trace_also_of_a_failure(server: LiveServer, tmp_path: Path) -> None:
    with SwarmClient(server.url, server.tokens.admin) as client:
        client.configure({"engine": "toy"})
        client.start()
    (tmp_path / "client.py").write_text(
        "async def agent(episode, task):\n"
        "    await episode.chat([{'role': 'user', 'content': 'Compute 1+1.'}])\n"
        "    return 1.0\n"
        "def broken(episode, task):\n"
        "    episode.chat([{'role': 'user', 'content': 'Compute 2+2.'}])\n"
        "    return 1 / 0\n"
    )
    good = swarm("debug", "client.py", "--server", server.url, cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    assert "Compute 1+1." in good.stdout
    assert "reward 1.0" in good.stdout
    bad = swarm("debug", "client.py:broken", "--server", server.url, cwd=tmp_path)
    assert bad.returncode == 1
    assert "Compute 2+2." in bad.stdout
    assert "ZeroDivisionError" in bad.stderr
    assert bad.stderr.count('  File "') == 1  # the agent's own frame
    wrong = swarm("debug", "client.py:nobody", "--server", server.url, cwd=tmp_path)
    assert wrong.returncode == 2
    assert "broken" in wrong.stderr


def test_debug_takes_a_task_by_id_or_place_and_shows_what_a_file_raises(
    server: LiveServer, tmp_path: Path
) -> None:
    with SwarmClient(server.url, server.tokens.admin) as client:
        client.configure({"engine": "toy"})
        client.start()
    (tmp_path / "client.py").write_text(
        "tasks = [{'id': 'sum', 'q': 'Compute 1+1.'}, {'id': 'product', 'q': 'Compute 2+2.'}]\n"
        "def agent(episode, task):\n"
        "    episode.chat([{'role': 'user', 'content': task.payload['q']}])\n"
        "    return 1.0\n"
    )
    ask = ("debug", "client.py", "--server", server.url, "--json")
    for wanted, task_id in (("1", "product"), ("sum", "sum"), ("0", "sum")):
        done = swarm(*ask, "--task", wanted, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["task_id"] == task_id
    absent = swarm(*ask, "--task", "7", cwd=tmp_path)
    assert (absent.returncode, json.loads(absent.stdout)["error"]["code"]) == (2, "client_usage")
    (tmp_path / "client.py").write_text("import json\nx = 1 +\n")
    broken = swarm("debug", "client.py", "--server", server.url, cwd=tmp_path)
    assert broken.returncode == 1
    assert "SyntaxError" in broken.stderr
    assert "error:" not in broken.stderr


def test_clients_shows_who_is_connected(server: LiveServer, tmp_path: Path) -> None:
    ask = ("clients", "--server", server.url)
    assert swarm(*ask, cwd=tmp_path).stdout == "No client is registered.\n"
    with SwarmClient(server.url, server.tokens.admin, client_id="a\x1b[31mb") as client:
        client.configure({"engine": "toy", "batch": {"tasks": 2, "repeat": 2}})
        client.start()
        with client.episode("t") as episode:
            episode.chat([{"role": "user", "content": "Compute 1+1."}])
            episode.finish(1.0)
        told = json.loads(swarm(*ask, "--json", cwd=tmp_path).stdout)
        assert [(c["client_id"], c["finished"], c["calls"]) for c in told] == [("a\x1b[31mb", 1, 1)]
        head, row = swarm(*ask, cwd=tmp_path).stdout.splitlines()
        assert head.split()[:4] == ["client", "role", "lease", "open"]
        assert "\x1b" not in row
        assert row.split()[:2] == ["a\\x1b[31mb", "trainer"]


@pytest.mark.parametrize(
    "command", [["status"], ["config"], ["config", "set"], ["exec"], ["debug"], ["clients"]]
)
def test_help_needs_no_server(command: list[str], tmp_path: Path) -> None:
    done = swarm(*command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_settings_layer_in_order(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"batch": {"tasks": 2}}')
    data = read_settings([str(path), "batch.repeat=3", "run_name=x"], {"seed": 9})
    assert data == {"batch": {"tasks": 2, "repeat": 3}, "run_name": "x"}
    assert validated(read_settings(["seed=4"], {"batch": {"tasks": 5}})).batch.tasks == 5
    with pytest.raises(ConfigError, match="not a section"):
        read_settings(["seed.x=1"], {"seed": 9})
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings([str(tmp_path / "absent.toml")])


def test_tokens_come_from_plain_files_and_from_a_servers_own(tmp_path: Path) -> None:
    plain, own, empty = tmp_path / "token", tmp_path / "tokens.json", tmp_path / "empty"
    plain.write_text("abc\n")
    own.write_text('{"admin": "", "client": "c", "eval": "e"}')
    empty.write_text("")
    assert (read_token(plain), read_token(own)) == ("abc", "c")
    for bad in (empty, tmp_path / "absent"):
        with pytest.raises(AuthError):
            read_token(bad)
