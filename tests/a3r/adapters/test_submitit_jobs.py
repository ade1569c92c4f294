"""submitit's local executor for real, and its Slurm executor over stand-ins of Slurm's commands."""

import json
import os
import stat
import sys
from pathlib import Path

import psutil
import pytest

from a3r.adapters.submitit_jobs import SubmititJobs, folder_of
from a3r.core.errors import PoolRefused, PoolUnavailable
from a3r.core.pools import JobAsk, PoolJobState, PoolKind, PoolOptions
from a3r.testing.waiting import retry_until

pytest.importorskip("submitit", reason="submitit is not installed")
SLEEP = "import time; time.sleep(600)"
SLURM = {
    "srun": "exit 0",
    "sbatch": 'cp "$1" "$SLURM_CONF/script"; env > "$SLURM_CONF/environment"; echo "Submitted batch job 42"',
    "squeue": 'cat "$SLURM_CONF/squeue" 2>/dev/null; exit 0',
    "sacct": 'echo "JobID|State|NodeList"; echo "42|$(cat "$SLURM_CONF/state")|n1"',
    "scancel": 'echo "$1" >> "$SLURM_CONF/cancelled"',
}
"""Stand-ins; the folder that SLURM_CONF names is their whole cluster."""


def ask(program: str, job: str = "pj-1", **env: str) -> JobAsk:
    return JobAsk(job, (sys.executable, "-c", program), env)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(PoolOptions(folder=str(tmp_path)), "p", tmp_path)


@pytest.fixture
def local(folder: Path) -> SubmititJobs:
    environ = {**os.environ, "ANTHROPIC_API_KEY": "key-of-the-daemon"}
    return SubmititJobs(PoolKind.LOCAL, PoolOptions(), folder, environ)


def state(engine: SubmititJobs, external: str, job: str = "pj-1") -> tuple[PoolJobState, str]:
    found = engine.look({job: external})[job]
    return found.state, found.detail


def over(engine: SubmititJobs, external: str) -> tuple[PoolJobState, str] | None:
    found = state(engine, external)
    return None if found[0] is PoolJobState.STARTING else found


@pytest.mark.long
def test_a_job_gets_what_it_is_given_and_nothing_of_the_daemons_environment(
    local: SubmititJobs, folder: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told.json"
    program = f"import json, os; json.dump(dict(os.environ), open({str(told)!r}, 'w'))"
    external = local.submit(ask(program, A3R_POOL_TICKET="ticket"))
    found = retry_until(lambda: over(local, external), 60)
    assert found[0] is PoolJobState.ENDED
    environ = json.loads(told.read_text())
    assert environ["A3R_POOL_TICKET"] == "ticket"
    assert "ANTHROPIC_API_KEY" not in environ
    assert environ["CUDA_VISIBLE_DEVICES"] == ""  # it asked for no GPU
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.long
def test_a_job_that_fails_says_why_in_its_own_words(local: SubmititJobs) -> None:
    external = local.submit(ask("import sys; sys.exit('error: no a3r here')"))
    found = retry_until(lambda: over(local, external), 60)
    assert found == (PoolJobState.FAILED, "error: no a3r here")


@pytest.mark.long
def test_asking_twice_gives_the_same_job_and_a_stopped_one_passes_the_signal_on(
    local: SubmititJobs, tmp_path: Path
) -> None:
    mark = tmp_path / "terminated"
    program = (
        "import pathlib, signal, sys, time\n"
        f"def end(*_): pathlib.Path({str(mark)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(600)"
    )
    external = local.submit(ask(program))
    assert local.submit(ask(program)) == external
    retry_until(lambda: (tmp_path / "ready").exists(), 30)
    assert state(local, external)[0] is PoolJobState.STARTING
    local.stop([external, "999999999"])
    retry_until(lambda: over(local, external), 60)
    assert mark.exists()
    local.stop([external])  # it is over: nothing is hit that has its pid now


@pytest.mark.long
def test_a_job_whose_process_was_killed_has_failed(local: SubmititJobs) -> None:
    external = local.submit(ask(SLEEP))
    head = psutil.Process(int(external))
    for process in [head, *head.children(recursive=True)]:
        process.kill()
    found = retry_until(lambda: over(local, external), 60)
    assert found[0] is PoolJobState.FAILED


def test_a_job_that_nobody_submitted_is_not_known(local: SubmititJobs) -> None:
    assert local.look({"pj-9": ""}) == {}


@pytest.fixture
def slurm(folder: Path, tmp_path: Path) -> tuple[SubmititJobs, Path]:
    """An engine over the stand-ins, and their folder."""
    commands, cluster = tmp_path / "bin", tmp_path / "cluster"
    cluster.mkdir()
    commands.mkdir()
    for name, script in SLURM.items():
        file = commands / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    (cluster / "state").write_text("PENDING")
    options = PoolOptions(
        gpus=2,
        cpus=8,
        memory_gb=64,
        time_limit_min=90,
        folder=str(tmp_path),
        slurm={"partition": "gpu", "account": "lab"},
    )
    environ = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "SLURM_CONF": str(cluster),
        "OPENAI_API_KEY": "key-of-the-daemon",
    }
    return SubmititJobs(PoolKind.SLURM, options, folder, environ), cluster


def test_slurm_is_asked_with_the_pools_options_and_a_clean_environment(
    slurm: tuple[SubmititJobs, Path],
) -> None:
    engine, cluster = slurm
    assert engine.submit(ask(SLEEP, A3R_POOL_TICKET="ticket")) == "42"
    script = (cluster / "script").read_text()
    wanted = ["job-name=pj-1", "gpus-per-node=2", "cpus-per-task=8", "mem=64GB", "time=90"]
    wanted += ["partition=gpu", "account=lab"]
    assert [w for w in wanted if f"#SBATCH --{w}" not in script] == []
    assert "ticket" not in script
    assert "OPENAI_API_KEY" not in (cluster / "environment").read_text()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("PENDING", PoolJobState.QUEUED),
        ("RUNNING", PoolJobState.STARTING),
        ("COMPLETED", PoolJobState.ENDED),
        ("PREEMPTED", PoolJobState.FAILED),
        ("CANCELLED by 1000", PoolJobState.FAILED),
        ("NODE_FAIL", PoolJobState.FAILED),
        ("OUT_OF_MEMORY", PoolJobState.FAILED),
    ],
)
def test_slurms_words_for_the_state_of_a_job_are_understood(
    slurm: tuple[SubmititJobs, Path], said: str, expected: PoolJobState
) -> None:
    engine, cluster = slurm
    (cluster / "state").write_text(said)
    found = engine.look({"pj-1": "42"})["pj-1"]
    assert found.state is expected
    assert said.split()[0] in found.detail


def test_a_job_of_slurm_whose_answer_was_lost_is_found_by_its_name(
    slurm: tuple[SubmititJobs, Path],
) -> None:
    engine, cluster = slurm
    assert engine.look({"pj-1": ""}) == {}
    (cluster / "squeue").write_text("42\n")
    assert engine.look({"pj-1": ""})["pj-1"].state is PoolJobState.QUEUED
    assert engine.submit(ask(SLEEP)) == "42"
    assert not (cluster / "script").exists()  # nothing was submitted again
    engine.stop(["42"])
    assert (cluster / "cancelled").read_text() == "42\n"


def test_without_slurm_a_person_is_told(folder: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": str(tmp_path)}
    engine = SubmititJobs(PoolKind.SLURM, PoolOptions(), folder, environ)
    with pytest.raises((PoolRefused, PoolUnavailable), match=r"s(run|queue)"):
        engine.submit(ask(SLEEP))
