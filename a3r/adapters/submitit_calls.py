"""``python -m a3r.adapters.submitit_calls submit|look|stop``: JSON on stdin, one JSON line on stdout. Exit code 2: a person must act.

The only module that imports submitit, which need not be installed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

Json = dict[str, Any]

RECORD = "submitted.json"
"""In a job's folder, once it is submitted: the engine's id, and for a local job the start time of its process."""
QUEUED = ("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED", "RESV_DEL_HOLD")
RUNNING = ("RUNNING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")


def run_worker(argv: Sequence[str], env: dict[str, str]) -> int:
    """What submitit runs on the node: the command, with every notice of the cluster passed on; its exit code is the result.

    Raises:
        RuntimeError: the exit code is not 0; submitit keeps it as the job's outcome.
    """
    child = subprocess.Popen(list(argv), env={**os.environ, **env})

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM if number == signal.SIGUSR2 else number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGUSR1):
        signal.signal(number, pass_on)
    code = child.wait()
    if code != 0:
        raise RuntimeError(f"the worker ended with exit code {code}")
    return code


def submit(request: Json) -> Json:
    """Submit one job, unless a job of its id is on file."""
    submitit: Any = import_module("submitit")

    folder = Path(request["folder"]) / request["id"]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    known: Json | None = _record(folder)
    if known is None and request["kind"] == "slurm":
        known = _named(request["id"])
    if known is None:
        cluster = "local" if request["kind"] == "local" else "slurm"
        executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster)
        executor.update_parameters(**request["parameters"])
        job = executor.submit(run_worker, request["argv"], request["env"])
        known = {"external_id": str(job.job_id)}
    if request["kind"] == "local":
        known["started"] = _started(int(known["external_id"]))
    draft = folder / f".{RECORD}"
    draft.write_text(json.dumps(known), encoding="utf-8")
    draft.replace(folder / RECORD)
    return known


def look(request: Json) -> Json:
    """State and detail of each job that is known; ``jobs``: our id -> the engine's."""
    found: Json = {}
    for ours, theirs in request["jobs"].items():
        folder = Path(request["folder"]) / ours
        record = _record(folder)
        if record is None and request["kind"] == "slurm":
            record = {"external_id": theirs} if theirs else _named(ours)
        if record is not None:
            state, detail = _state(request["kind"], folder, record)
            told = {"state": state, "detail": detail, "external_id": record["external_id"]}
            found[ours] = told
    return {"jobs": found}


def stop(request: Json) -> Json:
    """End jobs by the engine's ids."""
    for job in request["jobs"]:
        if request["kind"] == "slurm":
            done = subprocess.run(["scancel", job], capture_output=True, check=False, timeout=60)
            if done.returncode != 0 and b"nvalid job id" not in done.stderr:
                raise OSError(done.stderr.decode("utf-8", "replace").strip() or "scancel failed")
        else:
            _end_local(Path(request["folder"]), job)
    return {}


def _end_local(folder: Path, job: str) -> None:
    for path in folder.glob(f"*/{RECORD}"):
        record = json.loads(path.read_text("utf-8"))
        mine = record["external_id"] == job and _started(int(job)) == record["started"]
        if mine and record["started"] is not None:
            os.kill(int(job), signal.SIGTERM)


def _state(kind: str, folder: Path, record: Json) -> tuple[str, str]:
    submitit: Any = import_module("submitit")

    number = record["external_id"]
    job_class = submitit.LocalJob if kind == "local" else submitit.SlurmJob
    job: Any = job_class(folder=str(folder), job_id=number)
    if job.paths.result_pickle.exists():
        error = job.exception()
        return ("ended", "") if error is None else ("failed", _last_words(error, job))
    if kind == "local":
        alive = record.get("started") is not None and _started(int(number)) == record["started"]
        return ("starting", "") if alive else ("failed", _last_words(None, job))
    word = str(job.get_info(mode="force").get("State") or "UNKNOWN").split()[0].rstrip("+")
    if word in RUNNING:
        return "starting", word
    if word in QUEUED or word == "UNKNOWN":  # sacct learns of a new job late
        return "queued", word
    return ("ended" if word == "COMPLETED" else "failed"), f"{word} {_last_words(None, job)}"


def _last_words(error: BaseException | None, job: Any) -> str:
    """The end of what the job wrote, without our own traceback."""
    text = job.stderr() or job.stdout() or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("error:", "slurmstepd:"))]
    words = (told or lines or [str(error or "it ended without a result").strip()])[-1]
    return words[:300]


def _record(folder: Path) -> Json | None:
    try:
        return json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _named(name: str) -> Json | None:
    """A job of Slurm by its name: one whose answer was lost."""
    command = ["squeue", "--noheader", "--format", "%i", "--name", name]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    found = done.stdout.decode("utf-8", "replace").split()
    return {"external_id": found[0]} if found else None


def _started(pid: int) -> int | None:
    """Start time of the process in clock ticks since boot; None when it is gone or a zombie (proc_pid_stat(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def main() -> None:
    """Do what the first argument says."""
    request: Json = json.loads(sys.stdin.buffer.read())
    calls = {"submit": submit, "look": look, "stop": stop}
    # A job of this machine is our child: it must hold none of the pipes, or whoever called us would wait for its end.
    answers, words = os.dup(1), os.dup(2)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    try:
        answer = calls[sys.argv[1]](request)
    except ModuleNotFoundError:
        _leave(words, "submitit is not installed", 2)
    except (ValueError, RuntimeError) as error:
        _leave(words, str(error), 2)
    except Exception as error:  # noqa: BLE001 - the outermost edge: everything becomes words and an exit code
        _leave(words, f"{type(error).__name__}: {error}", 1)
    else:
        os.write(answers, json.dumps(answer).encode() + b"\n")


def _leave(words: int, message: str, code: int) -> None:
    os.write(words, " ".join(message.split())[:400].encode())
    sys.exit(code)


if __name__ == "__main__":
    main()
