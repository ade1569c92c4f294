"""The checks for first contact with a GPU: their list, their time, their report. What they do with an engine runs on the toy."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.protocol.config import TrainConfig
from swarm.testing.engine_kit import Bench
from swarm.testing.gpu_check import moves
from swarm.testing.gpu_check.__main__ import ENOUGH_S
from swarm.testing.gpu_check.cases import CASES, Case, chosen
from swarm.testing.gpu_check.probe import PROBES, config_of
from swarm.testing.gpu_check.report import Outcome, as_json, as_markdown
from swarm.testing.gpu_check.runner import Runner
from swarm.testing.toy_engine import ToyEngine
from swarm.testing.waiting import retry_until

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/gpu-untested.md").read_text("utf-8")
MACHINE = {"gpus": ["H200, 570, 1, 1"], "versions": {"torch": "2"}}
ONE, TWO = Case("one", "says one", timeout_s=120), Case("two", "says two", timeout_s=120)
FOUND = json.dumps([{"name": "boots", "ok": True, "detail": "cuda"}])


def alive(pid):
    """A zombie, which nobody waited for, has no command line."""
    path = Path(f"/proc/{pid}/cmdline")
    return path.exists() and path.read_bytes() != b""


def program(code):
    return lambda name, _model, _folder: [sys.executable, "-c", code, name]


def test_the_page_of_what_is_untested_names_each_check_and_no_other():
    assert set(re.findall(r"`((?:verl|torch)-[a-z0-9-]+)`", PAGE)) == {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_configuration_of_a_check_is_valid(case):
    assert config_of(case, "builtin:tiny-calc").engine == case.engine
    assert case.probe in PROBES


def test_no_check_may_take_a_third_of_the_time_of_all_and_all_is_under_ten_minutes():
    assert ENOUGH_S < 600
    assert all(case.timeout_s <= ENOUGH_S / 3 for case in CASES)


def test_a_check_that_needs_more_gpus_or_a_package_is_skipped_and_says_so():
    run, skipped = chosen([], 1, {"megatron-core": "0.15"}.get)
    assert {case.gpus for case in run} == {1}
    assert "verl-megatron" in {case.name for case in run}
    assert {why for _, why in skipped} == {
        "needs 2 GPUs, there are 1",
        "needs sglang, which is not installed",
    }
    assert len(run) + len(skipped) == len(CASES)


def test_checks_run_in_order_and_the_report_has_what_each_found(tmp_path):
    runner = Runner(tmp_path, MACHINE, 600, command=program(f"print({FOUND!r})"))
    record = runner.run([ONE, TWO], [(Case("three", "says three"), "needs 2 GPUs, there are 1")])
    assert [(c["name"], c["state"]) for c in record["cases"]] == [
        ("one", "ok"), ("two", "ok"), ("three", "skipped"),
    ]  # fmt: skip
    assert (record["ok"], record["unfinished"]) == (True, [])
    assert record["cases"][0]["detail"] == "cuda"
    assert json.loads((tmp_path / "gpu-check.json").read_text()) == record


def test_a_check_that_hangs_is_ended_with_all_that_it_started_and_the_next_one_runs(tmp_path):
    pids = tmp_path / "pids"
    hang = (
        "import os, subprocess, sys, time\n"
        f"if sys.argv[1] == 'two': print({FOUND!r}); sys.exit()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "print('still loading', file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    runner = Runner(tmp_path, MACHINE, 600, command=program(hang), slower=5 / 120)
    record = runner.run([ONE, TWO], [])
    assert [c["state"] for c in record["cases"]] == ["timeout", "ok"]
    assert record["cases"][0]["detail"] == "not done in 5 s; still loading"
    assert not any(map(alive, pids.read_text().split()))


def test_when_the_time_of_all_is_over_what_is_left_is_skipped(tmp_path):
    now = iter(range(0, 10_000, 100))
    runner = Runner(
        tmp_path, MACHINE, 250, command=program(f"print({FOUND!r})"), clock=lambda: next(now)
    )
    record = runner.run([ONE, TWO], [])
    assert [(c["state"], c["detail"]) for c in record["cases"]] == [
        ("ok", "cuda"), ("skipped", "no time was left"),
    ]  # fmt: skip


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_a_gpu_check_that_is_killed_leaves_a_report_of_what_was_done(tmp_path, signum):
    play = f"import sys; print({FOUND!r}) if sys.argv[1] == 'one' else sys.stdin.read()"
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from swarm.testing.gpu_check.cases import Case\n"
        "from swarm.testing.gpu_check.runner import Runner\n"
        f"command = lambda name, *_: [sys.executable, '-c', {play!r}, name]\n"
        f"runner = Runner(Path({str(tmp_path)!r}), {MACHINE!r}, 600, command=command)\n"
        "runner.run([Case(n, n) for n in ('one', 'two', 'three')], [])\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stderr=subprocess.DEVNULL
    )

    def seen():
        path = tmp_path / "gpu-check.md"  # written after the other
        return path.exists() and "| one | ok |" in path.read_text()

    try:
        await retry_until(seen, timeout_s=60)
        process.send_signal(signum)
        assert await process.wait() == -signum
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    record = json.loads((tmp_path / "gpu-check.json").read_text())
    assert [c["state"] for c in record["cases"]] == ["ok", "cut off", "not run"]
    assert (record["ok"], record["unfinished"]) == (False, ["two", "three"])
    assert "**Ended early; open: two, three.**" in (tmp_path / "gpu-check.md").read_text()


async def test_a_gpu_check_that_is_ended_ends_what_a_check_put_into_a_session_of_its_own(tmp_path):
    pid = tmp_path / "pid"
    hang = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "sys.stdin.read()\n"
    )
    code = (
        "import signal, sys\nfrom pathlib import Path\n"
        "from swarm.testing.gpu_check.cases import Case\n"
        "from swarm.testing.gpu_check.runner import Runner\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"command = lambda *_: [sys.executable, '-c', {hang!r}]\n"
        f"runner = Runner(Path({str(tmp_path)!r}), {MACHINE!r}, 600, command=command)\n"
        "runner.run([Case('one', 'says one')], [])\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stderr=subprocess.DEVNULL
    )
    try:
        await retry_until(lambda: pid.exists() and pid.read_text(), timeout_s=60)
        process.terminate()
        assert await process.wait() == 143
        await retry_until(lambda: not alive(pid.read_text()), timeout_s=20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_what_a_check_does_with_an_engine_runs_on_the_toy_too(tmp_path):
    bench = Bench(ToyEngine, TrainConfig(engine="toy"), tmp_path)
    found = {finding.name: finding for finding in await moves.again(bench)}
    assert list(found) == ["boots", "samples", "updates", "comes_back"]
    assert all(finding.ok for finding in found.values()), found
    assert "the same bits" in found["comes_back"].detail


async def test_after_a_step_that_failed_nothing_more_is_tried(tmp_path):
    bench = Bench(ToyEngine, TrainConfig(engine="toy"), tmp_path / "none" / "there", gap=-1.0)
    found = await moves.once(bench)
    assert [(f.name, f.ok) for f in found] == [
        ("boots", True),
        ("samples", True),
        ("updates", False),
    ]


def test_a_failed_check_fails_the_report_and_a_skipped_one_is_listed():
    bad = [{"name": "updates", "ok": False, "detail": "the gap | is 0.7"}]
    outcomes = [
        Outcome("a", "", "failed", 3.0, "updates", bad),
        Outcome("b", "", "skipped", 0.0, "needs 2 GPUs"),
    ]
    record = as_json(outcomes, MACHINE)
    assert (record["ok"], record["failed"], record["skipped"]) == (False, ["a"], ["b"])
    text = as_markdown(record)
    assert "| a | failed | 3 |" in text
    assert "the gap / is 0.7" in text
    assert "rehearsal" not in text
    assert "A rehearsal on the CPU" in as_markdown(as_json(outcomes, MACHINE, rehearsal=True))


def test_without_a_gpu_nothing_is_run_and_nothing_is_claimed(tmp_path):
    command = [sys.executable, "-m", "swarm.testing.gpu_check", "--report", str(tmp_path / "r")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": str(tmp_path)},
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "no GPU" in done.stderr
    assert "--rehearse" in done.stderr
    assert not (tmp_path / "r").exists()


def test_an_unknown_check_is_refused_with_those_there_are(tmp_path):
    command = [sys.executable, "-m", "swarm.testing.gpu_check", "--rehearse", "nonsense"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert done.returncode == 2
    assert "verl-lora" in done.stderr
