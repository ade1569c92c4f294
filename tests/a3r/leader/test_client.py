from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
import uvicorn

from a3r.core.hashing import tree_hash
from a3r.leader.experiment import blueprint_name, build_blueprints, client_bundle
from a3r.leader.generate import client_source, generate_client
from a3r.leader.goal_parsing import parse_goal
from a3r.leader.model_files import find_model, weights_fingerprint
from a3r.leader.static_check import check_folder, check_source, words_of
from a3r.leader.sweep import SweepPlanner
from a3r.testing.records import synthetic_records
from swarm.protocol.config import BatchConfig, TrainConfig
from swarm.protocol.states import EngineState, EpisodeKind, EpisodeState
from swarm.server.keys import Tokens
from swarm.server.routes.app import create_app
from swarm.server.serve import listening
from swarm.server.service.service import SwarmService
from swarm.tasks import calculator
from swarm.testing import ToyFleet

ARGUMENTS = {"parallel": 8, "held_out_items": 20, "held_out_seed": 0}
MINIMAL = "\n".join(f"def {n}(): ..." for n in ("run_agent", "reward", "train", "evaluate", "main"))


def test_the_generated_client_compiles_and_passes_its_checks(tmp_path):
    folder = generate_client("calculator", tmp_path / "client")
    source = (folder / "client.py").read_text(encoding="utf-8")
    compile(source, "client.py", "exec")
    assert check_folder(folder) == []
    assert "answer" not in json.dumps(ARGUMENTS)
    assert max(len(line) for line in source.splitlines()) <= 100


def test_the_same_task_gives_the_same_bytes():
    first, second = client_bundle("calculator"), client_bundle("calculator")
    assert first == second
    assert client_source("calculator") == client_source("calculator")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import socket", "imports 'socket'"),
        ("import subprocess as s", "imports 'subprocess'"),
        ("from os import system", "imports 'os'"),
        ("import swarm.server.service", "imports 'swarm.server.service'"),
        ("from swarm import server", "imports 'swarm.server'"),
        ("from a3r.worker import evaluator", "imports 'a3r.worker'"),
        ("import importlib", "imports 'importlib'"),
        ("from . import x", "relative import"),
        ("x = eval('1')", "uses 'eval'"),
        ("x = ().__class__.__bases__", "reaches for '__class__'"),
        ("def f(:", "does not parse"),
    ],
)
def test_a_client_that_reaches_for_more_than_it_needs_is_named_by_line(code, problem):
    found = check_source(f"{MINIMAL}\n{code}\n")
    assert any(problem in text for text in found)
    assert any("line 6" in text for text in found)


@pytest.mark.parametrize("source", ["x = " + "-" * 50_000 + "1", "(" * 5000, "x = 1\0"])
def test_code_that_breaks_the_parser_does_not_parse(source):
    assert check_source(source)[0].startswith("does not parse")
    assert words_of(source) == frozenset()


def test_a_client_without_its_functions_is_refused():
    assert check_source("import json\n", required=("reward",)) == ["there is no function reward()"]


def test_a_folder_without_the_entry_or_with_other_bytes_is_refused(tmp_path):
    assert check_folder(tmp_path) == ["there is no client.py"]
    (tmp_path / "client.py").write_text(f"import helper\n{MINIMAL}\n", encoding="utf-8")
    (tmp_path / "helper.py").write_bytes(b"x = '\xff'")
    assert check_folder(tmp_path) == ["helper.py is not UTF-8"]


@pytest.mark.parametrize("name", ["tiny-calc", "tiny-calc-qwen"])
def test_the_fingerprint_without_torch_is_the_engines_own(name):
    weights = pytest.importorskip("swarm.server.engine.weights")
    folder = find_model(f"builtin:{name}", Path())
    assert weights_fingerprint(folder) == weights.fingerprint(weights.load_model(folder))


def test_a_design_becomes_blueprints_that_differ_in_their_factors_only(goal_text):
    goal = parse_goal(goal_text, Path("goal.md"))
    plan = SweepPlanner().next(goal, synthetic_records((), goal.model_dump(mode="json")))
    client = client_bundle(goal.task)
    blueprints = build_blueprints(goal, plan, 1, {goal.task: client}, Path())
    assert [b.name for b in blueprints][:2] == ["s1-b1-cap10", "s1-b8-cap10"]
    assert len({b.cell_hash() for b in blueprints}) == 6
    train = blueprints[0].servers[0].train
    assert (train.batch.tasks, train.sampling.max_response_tokens) == (1, 10)
    assert (train.optimizer.lr, train.batch.repeat, train.stop_at_step) == (0.002, 4, 5)
    assert train.eval_gate.at_steps == (0,)
    evaluator = blueprints[0].evaluator
    items = calculator.held_out(40, 0)
    assert evaluator.item_set_hash == calculator.item_set_hash(items)
    later = plan.model_copy(update={"kind": "replicate"})
    again = build_blueprints(goal, later, 2, {goal.task: client}, Path())
    assert [b.cell_hash() for b in again] == [b.cell_hash() for b in blueprints]
    assert again[0].content_hash() != blueprints[0].content_hash()


def test_names_of_blueprints_are_short_and_safe():
    assert blueprint_name({"learning_rate": 0.0005}, 3) == "s3-lr0.0005"
    assert blueprint_name({"algorithm.name": "grpo no/std"}, 1) == "s1-namegrpo-no-std"


async def run_client(folder: Path, spec: dict, where: Path) -> tuple[int, str]:
    told = where / f"{spec['mode']} für.json"
    told.write_text(json.dumps(spec), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(folder / "client.py"),
        str(told),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, stderr.decode()


@pytest.fixture
async def served(tmp_path):
    """A real server over a real port, on a toy engine; (service, url, tokens)."""
    tokens = Tokens.mint()
    state = tmp_path / "state"
    state.mkdir()
    service = await SwarmService.open(
        state_dir=state, engine_factory=ToyFleet(), tokens=tokens, resume=False
    )
    await service.configure(
        TrainConfig(engine="toy", batch=BatchConfig(tasks=2, repeat=2), stop_at_step=2)
    )
    await service.start()
    with listening("127.0.0.1", 0) as sock:
        settings = {"loop": "none", "ws": "none", "lifespan": "off", "log_config": None}
        server = uvicorn.Server(
            uvicorn.Config(create_app(service, tokens), timeout_graceful_shutdown=1, **settings)
        )
        job = asyncio.create_task(server.serve(sockets=[sock]))
        yield service, f"http://127.0.0.1:{sock.getsockname()[1]}", tokens
        server.should_exit = True
        await job
    await service.close()


@pytest.mark.slow
async def test_the_generated_client_trains_to_the_end_and_evaluates_without_answers(
    served, tmp_path
):
    service, url, tokens = served
    folder = generate_client("calculator", tmp_path / "client")
    before = tree_hash(folder)
    (tmp_path / "client.token").write_text(tokens.client + "\n", encoding="utf-8")
    (tmp_path / "eval.token").write_text(tokens.eval, encoding="utf-8")
    spec = {"url": url, "seed": 3, "arguments": ARGUMENTS}

    train = {**spec, "mode": "train", "token_file": str(tmp_path / "client.token")}
    code, said = await run_client(folder, train, tmp_path)
    assert code == 0, said
    assert service.status().state is EngineState.TRAINED
    assert [m.episodes for m in service.metrics(0)] == [4, 4]

    items = calculator.held_out(20, 0)
    prompts = [
        {"item_id": t.task_id, "payload": {"operands": t.payload["operands"]}} for t in items
    ]
    (tmp_path / "items.json").write_text(json.dumps(prompts), encoding="utf-8")
    evaluate = {
        **spec,
        "mode": "eval",
        "token_file": str(tmp_path / "eval.token"),
        "items_file": str(tmp_path / "items.json"),
        "out_file": str(tmp_path / "out.json"),
        "step": 2,
    }
    code, said = await run_client(folder, evaluate, tmp_path)
    assert code == 0, said
    rows = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["episodes"]
    assert [r["item_id"] for r in rows] == [t.task_id for t in items]
    for row, task in zip(rows, items, strict=True):
        trace = service.trace(row["episode_id"], calls=True)
        assert (trace.kind, trace.state) == (EpisodeKind.EVAL, EpisodeState.FINISHED)
        assert trace.reward is None
        assert calculator.score(task, trace) in (0.0, 1.0)
    assert tree_hash(folder) == before
