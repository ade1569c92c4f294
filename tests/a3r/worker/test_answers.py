"""What a worker says when a person asks for a log or a trace, and what it refuses."""

import base64
import socket

import pytest

from a3r.core.wire import Command
from a3r.worker.answers import answer
from a3r.worker.supervisor import write_json


@pytest.fixture
def log(lab):
    path = lab.folder().log("server")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"0123456789\xff\n")
    return path


def ask(lab, **args):
    command = Command(kind="fetch_log", attempt_id="a-0000001", id=3, args=args)
    return answer(command, lab.home / "runs", "w-1")


@pytest.mark.parametrize(
    ("args", "data", "begin"),
    [
        ({}, b"0123456789\xff\n", 0),
        ({"offset": 4, "limit": 3}, b"456", 4),
        ({"offset": -2}, b"\xff\n", 10),
        ({"offset": -99, "limit": 2}, b"01", 0),
        ({"offset": 99}, b"", 12),
    ],
)
def test_a_piece_of_a_log_comes_as_the_bytes_that_it_is(lab, log, args, data, begin):
    found = ask(lab, name="server", **args)
    assert found.ok
    assert base64.b64decode(found.result["data_b64"]) == data
    assert (found.result["offset"], found.result["size"]) == (begin, 12)


@pytest.mark.parametrize("name", ["../attempt", "/etc/passwd", "client", "a/b", ""])
def test_a_name_that_is_no_log_of_the_attempt_brings_a_reason(lab, log, name):
    found = ask(lab, name=name)
    assert not found.ok
    assert found.result["error"]


@pytest.mark.parametrize("attempt", ["..", "a/../..", "unknown"])
def test_an_attempt_that_is_not_here_brings_a_reason(lab, log, attempt):
    command = Command(kind="fetch_log", attempt_id=attempt, id=3, args={"name": "server"})
    assert not answer(command, lab.home / "runs", "w-1").ok


def test_a_log_that_is_not_there_is_told_with_those_that_are(lab, log):
    assert "its logs: server" in ask(lab, name="client").result["error"]
    assert ask(lab, name="../x").result["error"].startswith("name: String should match")


def test_a_trace_of_a_server_that_has_ended_says_so_and_not_how_to_start_one(lab, log):
    attempt = lab.folder().path
    (attempt / "server").mkdir()
    write_json(attempt / "server" / "tokens.json", {"admin": "secret"})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    write_json(attempt / "ready.json", {"url": f"http://127.0.0.1:{port}", "port": port})
    command = Command(kind="fetch_trace", attempt_id="a-0000001", args={"episode_id": "e"})
    said = answer(command, lab.home / "runs", "w-1").result["error"]
    assert "does not run (any more)" in said
    assert "swarm serve" not in said


def test_a_trace_without_a_server_brings_a_reason(lab, log):
    command = Command(kind="fetch_trace", attempt_id="a-0000001", args={"episode_id": "e"})
    found = answer(command, lab.home / "runs", "w-1")
    assert "does not run" in found.result["error"]


def test_a_worker_answers_on_its_heartbeat(lab, log):
    command = Command(kind="fetch_log", attempt_id="a-0000001", id=8, args={"name": "server"})
    lab.hub.questions.append(command)
    lab.worker()
    found = lab.until(lambda: lab.hub.answers.get(8))
    assert found.ok
    assert found.worker_id == "w-1"
