"""``swarm page``: an address for a browser, or a file; and the client's own methods behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest

from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.protocol.errors import NotFoundError
from swarm.testing.live_server import LiveServer, live_server

MAIN = "from swarm.cli import main; main()"


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / ".swarm") as live:
        yield live


@pytest.fixture
def episode_id(server: LiveServer) -> str:
    with SwarmClient(server.url, server.tokens.admin) as client:
        client.configure({"engine": "toy", "batch": {"tasks": 1, "repeat": 2}})
        client.start()
        with client.episode("sum") as episode:
            episode.chat([{"role": "user", "content": "Compute 1+1."}])
            episode.finish(1.0)
        return episode.id


def page(server: LiveServer, cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SWARM_")}
    return subprocess.run(
        [sys.executable, "-c", MAIN, "page", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean, "SWARM_URL": server.url, "SWARM_TOKEN": server.tokens.client},
        timeout=60,
        check=False,
    )


def test_the_printed_address_opens_the_page_without_a_token(
    server: LiveServer, episode_id: str, tmp_path: Path
) -> None:
    done = page(server, tmp_path, episode_id)
    assert done.returncode == 0, done.stderr
    (url,) = done.stdout.splitlines()
    assert server.tokens.client not in url
    with urllib.request.urlopen(url) as answer:
        assert f"Episode {episode_id}" in answer.read().decode()
    document = json.loads(page(server, tmp_path, episode_id, "--json", "--valid-s", "60").stdout)
    assert document["episode_id"] == episode_id
    assert document["url"].startswith(server.url)


def test_the_file_is_the_whole_page(server: LiveServer, episode_id: str, tmp_path: Path) -> None:
    done = page(server, tmp_path, episode_id, "--out", "päge é.html", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"episode_id": episode_id, "path": "päge é.html"}
    text = (tmp_path / "päge é.html").read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert "Compute 1+1." in text


def test_what_cannot_be_done_is_told_with_the_documented_exit_codes(
    server: LiveServer, episode_id: str, tmp_path: Path
) -> None:
    unknown = page(server, tmp_path, "nobody", "--json")
    assert unknown.returncode == 1
    assert json.loads(unknown.stdout)["error"]["code"] == NotFoundError.code
    nowhere = page(server, tmp_path, episode_id, "--out", "no/such/folder/x.html")
    assert nowhere.returncode == 2
    assert "hint: " in nowhere.stderr
    too_long = page(server, tmp_path, episode_id, "--valid-s", "1e9")
    assert too_long.returncode == 2


def test_a_stopped_servers_folder_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "state é"
    with live_server(folder) as server, SwarmClient(server.url, server.tokens.admin) as client:
        batch = {"tasks": 1, "repeat": 2, "drain_deadline_s": 0.2}
        client.configure({"engine": "toy", "batch": batch})
        client.start()
        for reward in (0.0, 1.0):
            with client.episode("sum") as episode:
                episode.chat([{"role": "user", "content": "Compute 1+1."}])
                episode.finish(reward)
        client.wait_step(0, 20)
        stored = ("--state-dir", str(folder), "--out", "p.html")
        running = page(server, tmp_path, episode.id, *stored)
        assert (running.returncode, (tmp_path / "p.html").exists()) == (1, False)
        assert "another server" in running.stderr
        asked = page(server, tmp_path, episode.id, "--out", "asked.html")
        assert asked.returncode == 0, asked.stderr
    done = page(server, tmp_path, episode.id, *stored)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "p.html").read_text("utf-8")
    assert text == (tmp_path / "asked.html").read_text("utf-8")
    assert text.count("<td>trained</td>") > 0
    without_out = page(server, tmp_path, episode.id, "--state-dir", str(folder))
    assert without_out.returncode == 2
    empty = page(server, tmp_path, episode.id, "--state-dir", str(tmp_path), "--out", "x.html")
    assert empty.returncode == 2
    assert not (tmp_path / "journal.sqlite").exists()
    assert page(server, tmp_path, "nobody", *stored).returncode == 1


async def test_both_clients_see_the_overview_and_make_tickets(
    server: LiveServer, episode_id: str
) -> None:
    with SwarmClient(server.url, server.tokens.admin) as sync:
        async with AsyncSwarmClient(server.url, server.tokens.admin) as other:
            assert (await other.overview()).policy == sync.overview().policy == "C2"
            for ticket in (sync.page_ticket(episode_id, 60), await other.page_ticket(episode_id)):
                assert ticket.episode_id == episode_id
                assert "ticket=" in ticket.url


@pytest.mark.parametrize("command", ["watch", "page", "log"])
def test_help_needs_neither_server_nor_library(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, command, "--help"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Exit codes" in done.stdout
    loaded = f"import sys; from swarm.cli import build_app; build_app(['{command}']); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    assert not {"textual", "wandb", "mlflow", "prometheus_client", "jinja2"} & set(modules)
