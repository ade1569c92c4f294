"""A sealed evaluator's code behind walls: it does its work, and reaches nothing."""

import json
import socket
from pathlib import Path

import pytest

from a3r.blueprints.model import SandboxSpec
from a3r.core.errors import BlueprintError
from a3r.sandbox.host import host_walls
from a3r.sandbox.scoring import enclosed_scoring, walled_task

complete = pytest.mark.skipif(bool(host_walls().missing), reason=f"{host_walls().missing}")
CODE = """
import json, os, pathlib, socket
def items(count, seed):
    return [{"item_id": str(i), "payload": {"n": i}, "answer": i + seed} for i in range(count)]
def can(what, *a):
    try: what(*a)
    except OSError as e: return type(e).__name__
    return "yes"
def score(item, trace):
    beside = pathlib.Path(__file__).parent.parent / "secret"
    raise ValueError(json.dumps({
        "own": can(pathlib.Path(__file__).read_text), "beside": can(beside.read_text),
        "write": can(pathlib.Path("x").write_text, "x"), "tmp": can((pathlib.Path(os.environ["TMPDIR"]) / "x").write_text, "x"),
        "network": can(socket.create_connection, ("127.0.0.1", %d)), "processes": sum(p.isdigit() for p in os.listdir("/proc")),
    }))
"""


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "ein Ordner é" / "evaluator"
    found.mkdir(parents=True)
    (found.parent / "secret").write_text("s")
    return found


@complete
@pytest.mark.timeout(60)
def test_it_reads_its_folder_and_reaches_nothing_else(folder):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        (folder / "evaluation.py").write_text(CODE % listening.getsockname()[1])
        with walled_task(folder) as task:
            items = task.items(3, 5)
            assert [i.payload["answer"] for i in items] == [5, 6, 7]
            with pytest.raises(BlueprintError) as told:
                task.score(items[0], {"calls": []})
    said = told.value.message
    assert json.loads(said[said.index("{") : said.rindex("}") + 1]) == {
        "own": "yes",
        "beside": "FileNotFoundError",
        "write": "OSError",
        "tmp": "yes",
        "network": "ConnectionRefusedError",
        "processes": 2,
    }


def test_walls_that_are_off_leave_the_plain_command(folder, tmp_path):
    made = enclosed_scoring(folder, tmp_path / "scratch", SandboxSpec(mode="off"))
    assert Path(made.argv[-1]) == folder.resolve()
    assert made.record.tool == "none"
