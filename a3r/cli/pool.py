"""``a3r pool``: clusters that are asked for workers when runs wait. Add, list, show, remove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from a3r.cli import new_group
from a3r.cli.edge import JsonOption, emit, fields, hub, reported, table
from a3r.core.errors import PoolRefused
from a3r.core.pools import PoolKind

Json = dict[str, Any]
NameArgument = Annotated[str, typer.Argument(help="Name of the pool, as gpu-cluster.")]
RAY = ("ray://", "http://", "https://")


def register(app: typer.Typer) -> None:
    """Add the noun to ``app``."""
    group = new_group("Clusters (Ray, Slurm, SkyPilot) that are asked for workers when runs wait.")
    for name, command in {
        "add": add,
        "list": list_pools,
        "show": show,
        "remove": remove,
    }.items():
        group.command(name)(command)
    app.add_typer(group, name="pool")


EngineArgument = Annotated[
    str, typer.Argument(help="ray://HEAD[:8265], slurm, local, or skypilot.")
]
FileArgument = Annotated[Path | None, typer.Argument(help="skypilot: the task's YAML.")]
MaxWorkersOption = Annotated[int, typer.Option(min=1, help="Jobs at once.")]
SlotsOption = Annotated[int, typer.Option(min=1, help="Attempts at once of a worker.")]
GpusOption = Annotated[int, typer.Option(min=0, help="GPUs of a worker.")]
CpusOption = Annotated[float | None, typer.Option(help="CPUs of a worker.")]
MemoryGbOption = Annotated[float | None, typer.Option(help="Memory of a worker.")]
IdleExitSOption = Annotated[
    float, typer.Option(min=1, help="A worker ends after so long without an attempt.")
]
HubUrlOption = Annotated[str, typer.Option(help="The hub as the cluster's machines dial it.")]
CaFileOption = Annotated[
    Path | None, typer.Option(help="Certificate (PEM) that the machines trust for it.")
]
PythonOption = Annotated[str, typer.Option(help="Interpreter with a3r on the machines.")]
ScratchOption = Annotated[
    str, typer.Option(help="Folder on the machines for workspaces; default: TMPDIR.")
]
FolderOption = Annotated[
    Path | None, typer.Option(help="slurm, local: submitit's folder, for slurm shared.")
]
PartitionOption = Annotated[str, typer.Option(help="slurm: the partition.")]
SbatchOption = Annotated[
    list[str] | None, typer.Option(help="slurm: another option, as account=lab. Repeatable.")
]
TimeLimitMinOption = Annotated[
    int | None, typer.Option(min=1, help="slurm, local: longest life of a job; default a day.")
]
TokenFileOption = Annotated[
    Path | None, typer.Option(help="ray: file with the cluster's own token.")
]
RuntimeEnvOption = Annotated[
    Path | None, typer.Option(help="ray: JSON file, merged into the runtime environment.")
]


def add(
    name: NameArgument,
    engine: EngineArgument,
    file: FileArgument = None,
    max_workers: MaxWorkersOption = 4,
    slots: SlotsOption = 1,
    gpus: GpusOption = 0,
    cpus: CpusOption = None,
    memory_gb: MemoryGbOption = None,
    idle_exit_s: IdleExitSOption = 120.0,
    hub_url: HubUrlOption = "",
    ca_file: CaFileOption = None,
    python: PythonOption = "",
    scratch: ScratchOption = "",
    folder: FolderOption = None,
    partition: PartitionOption = "",
    sbatch: SbatchOption = None,
    time_limit_min: TimeLimitMinOption = None,
    token_file: TokenFileOption = None,
    runtime_env: RuntimeEnvOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a cluster, or bring one up to date; the same command again changes nothing.

    Exit codes: 0 done, 2 bad input, 3 the name is another engine's that still has jobs.
    """
    with reported(as_json=as_json):
        kind, address = _engine(engine)
        size: Json = {"max_workers": max_workers, "slots": slots, "idle_exit_s": idle_exit_s}
        worker: Json = {"gpus": gpus, "cpus": cpus, "memory_gb": memory_gb}
        machine: Json = {"hub_url": hub_url, "ca_file": _path(ca_file), "python": python}
        machine |= {"scratch": scratch, "folder": _path(folder)}
        cluster: Json = {
            "address": address,
            "token_file": _path(token_file),
            "runtime_env": _json_of(runtime_env),
            "slurm": _sbatch(partition, sbatch or []),
            "time_limit_min": time_limit_min,
            "task_file": _path(file),
        }
        body: Json = {**size, **worker, **machine, **cluster}
        given = {key: value for key, value in body.items() if value not in (None, "", {})}
        _put(name, {"kind": kind.value, "options": given}, as_json=as_json)


def _put(name: str, body: Json, *, as_json: bool) -> None:
    from a3r.cli.daemon.starting import ensure_daemon
    from a3r.cli.edge import workspace_or_new
    from a3r.hub.client import segment

    with ensure_daemon(workspace_or_new()) as client:
        made = client.put(f"pools/{segment(name)}", body)
    words = f"pool {name}: {made['kind']}, at most {made['max_workers']} workers, asked for when runs wait"
    emit({"pool": made}, [words], as_json=as_json)


def _engine(text: str) -> tuple[PoolKind, str]:
    if text.startswith(RAY):
        return PoolKind.RAY, text
    if text in (PoolKind.SLURM, PoolKind.LOCAL, PoolKind.SKYPILOT):
        return PoolKind(text), ""
    raise PoolRefused(
        f"{text!r} is no engine", hint="ray://HEAD:8265, slurm, local, or skypilot FILE.yaml"
    )


def _path(path: Path | None) -> str:
    return "" if path is None else str(path.expanduser().absolute())


def _json_of(file: Path | None) -> Json:
    if file is None:
        return {}
    try:
        value: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PoolRefused(
            f"--runtime-env: {error}", hint="a JSON object, as Ray reads it"
        ) from error
    if not isinstance(value, dict):
        raise PoolRefused("--runtime-env is no JSON object", hint='as {"pip": ["a3r"]}')
    return cast("Json", value)


def _sbatch(partition: str, more: list[str]) -> dict[str, str]:
    found = {"partition": partition} if partition else {}
    for text in more:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise PoolRefused(f"--sbatch {text!r} is no KEY=VALUE", hint="as --sbatch account=lab")
        found[key.lstrip("-")] = value
    return found


def list_pools(as_json: JsonOption = False) -> None:
    """Show the pools: workers there and on their way, and how it stands with each."""
    with reported(as_json=as_json), hub() as client:
        body = client.get("pools")
        rows = [
            (
                p["name"],
                p["kind"],
                p["state"],
                p["working"],
                p["coming"],
                p["max_workers"],
                p["detail"],
            )
            for p in body["pools"]
        ]
        head = ("pool", "engine", "state", "workers", "coming", "most", "detail")
        emit(body, table(rows, head) if rows else ["no pool yet"], as_json=as_json)


def show(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one pool: what was asked of it and what became of it."""
    with reported(as_json=as_json), hub() as client:
        from a3r.hub.client import segment

        body = client.get(f"pools/{segment(name)}")
        emit(body, _lines(body), as_json=as_json)


def _lines(body: Json) -> list[str]:
    options = {k: v for k, v in body["options"].items() if k != "max_workers"}
    lines = fields(
        [
            ("pool", f"{body['name']} ({body['kind']}, {body['state']})"),
            (
                "workers",
                f"{body['working']} there, {body['coming']} coming, at most {body['max_workers']}",
            ),
            ("detail", body["detail"]),
            *((key, value) for key, value in options.items()),
        ]
    )
    rows = [
        (
            j["id"],
            j["external_id"],
            j["state"],
            j["worker_id"],
            len(j["attempts"]),
            f"{j['age_s']:.0f} s",
            j["detail"],
        )
        for j in body["jobs"]
    ]
    if not rows:
        return [*lines, "no worker was asked for yet"]
    head = ("job", "engine's id", "state", "worker", "attempts", "age", "detail")
    return [*lines, "", *table(rows, head)]


def remove(
    name: NameArgument,
    now: Annotated[
        bool, typer.Option("--now", help="End its jobs; their attempts are tried again elsewhere.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask nothing more of a pool. Its workers finish what they have, then it is gone; jobs that wait are withdrawn.

    Safe to repeat. Exit codes: 0 done, 2 there is none of this name.
    """
    with reported(as_json=as_json), hub() as client:
        from a3r.hub.client import segment

        body = client.post(f"pools/{segment(name)}/remove", {"now": now})
        held = sum(len(j["attempts"]) for j in body["jobs"])
        words = (
            "is gone" if body["state"] == "removed" else f"goes; its workers have {held} attempts"
        )
        emit(body, [f"pool {name} {words}"], as_json=as_json)
