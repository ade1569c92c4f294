"""``python -m a3r.adapters.skypilot_calls submit|look|stop``: JSON on stdin, one JSON line on stdout. Exit code 2: a person must act.

The only module that imports SkyPilot, which need not be installed. Managed jobs (``sky.jobs``) under our id as their name; SkyPilot itself starts a job again
elsewhere when a spot machine is taken away, and the worker there finds its ticket spent: the job then fails and a new one is asked for.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

Json = dict[str, Any]

QUEUED = ("PENDING", "SUBMITTED", "STARTING", "LAUNCHING", "DEPRECATED_SUBMITTED")
RUNNING = ("RUNNING", "RECOVERING", "CANCELLING", "WINDING_DOWN")


class CannotDo(Exception):
    """A person must change something."""


def submit(request: Json) -> Json:
    """Launch the task of the file with our command as its ``run``; a job of this name that is there is the answer."""
    sky: Any = import_module("sky")

    name = request["id"]
    if name in look({"jobs": {name: ""}})["jobs"]:
        return {"external_id": name}
    task: Any = sky.Task.from_yaml(request["task_file"])
    if task.run is not None:
        raise CannotDo(f"{request['task_file']} has a 'run': a3r writes that part")
    task.name, task.run = name, request["run"]
    # Secrets are hidden in SkyPilot's own output, environment variables are not.
    task.update_secrets(request["env"])
    sky.get(sky.jobs.launch(task, name=name))
    return {"external_id": name}


def look(request: Json) -> Json:
    """State and detail of each job that is known, by its name."""
    sky: Any = import_module("sky")

    rows: Any = sky.get(sky.jobs.queue(refresh=True, skip_finished=False, all_users=False))
    newest: dict[str, Any] = {}
    for row in sorted(rows, key=lambda r: r["job_id"]):
        newest[str(row["job_name"])] = row
    known = {job: newest[job] for job in request["jobs"] if job in newest}
    return {"jobs": {job: _told(row) for job, row in known.items()}}


def _told(row: Json) -> Json:
    status = row["status"]
    word = str(getattr(status, "value", status)).upper()
    reason = " ".join(str(row.get("failure_reason") or "").split())[:300]
    if word in QUEUED:
        state = "queued"
    elif word in RUNNING:
        state = "starting"
    else:
        state = "ended" if word == "SUCCEEDED" else "failed"
    return {"state": state, "detail": f"{word} {reason}".strip()}


def stop(request: Json) -> Json:
    """Cancel jobs by name; ended and unknown ones are fine."""
    sky: Any = import_module("sky")

    told = look({"jobs": dict.fromkeys(request["jobs"], "")})["jobs"]
    for name, job in told.items():
        if job["state"] in ("queued", "starting"):
            sky.get(sky.jobs.cancel(name=name))
    return {}


def main() -> None:
    """Do what the first argument says. SkyPilot talks on stdout: our answer is the last line."""
    request: Json = json.loads(sys.stdin.buffer.read())
    calls = {"submit": submit, "look": look, "stop": stop}
    try:
        answer = calls[sys.argv[1]](request)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"SkyPilot is not installed beside a3r ({error.name} is missing)\n")
        sys.exit(2)
    except (CannotDo, ValueError) as error:
        sys.stderr.write(" ".join(str(error).split())[:400] + "\n")
        sys.exit(2)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
