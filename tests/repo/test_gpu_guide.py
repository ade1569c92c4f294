"""What the guide for GPU clusters tells to type and to write is what the programs take: configurations, goal, commands, recipes."""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from swarm.protocol.config import TrainConfig, VerlConfig
from swarm.server.model_files import resolve_model

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/gpu-cluster.md").read_text("utf-8")
UNTESTED = (ROOT / "docs/gpu-untested.md").read_text("utf-8")
MODEL = "/models/Qwen2.5-7B-Instruct"


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.S | re.M)
    return [text for name, text in found if name == language]


def yaml(text):
    return YAML(typ="safe").load(text)


def test_every_configuration_is_one_that_the_server_takes():
    found = [yaml(text) for text in blocks("yaml")]
    whole = [TrainConfig.model_validate(body) for body in found if "engine" in body]
    assert {config.engine for config in whole} == {"verl"}
    parts = [body["verl"] for body in found if "engine" not in body]
    assert parts
    assert all(VerlConfig.model_validate(part).nodes >= 1 for part in parts)


# --- the campaign ------------------------------------------------------------------------------------------------


def test_the_goal_passes_the_check_and_the_check_prints_what_the_guide_shows(tmp_path):
    (goal,) = blocks("markdown")
    (shown,) = blocks("text")
    model = tmp_path / "weights"
    shutil.copytree(resolve_model("builtin:tiny-calc"), model)
    (tmp_path / "seven-b").mkdir()
    (tmp_path / "seven-b/goal.md").write_text(goal.replace(MODEL, str(model)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "a3r", "campaign", "check", "seven-b"],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "A3R_HOME": str(tmp_path / ".a3r")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.replace(str(model), MODEL) == shown


# --- commands ----------------------------------------------------------------------------------------------------


def commands():
    """(program, words before the first flag, flags) of each swarm and a3r command of the page."""
    text = "\n".join(blocks("") + blocks("bash")).replace("\\\n", " ")
    found = re.findall(r"bin/(swarm|a3r)\"? ([^\n#]*)", text)
    assert len(found) >= 10
    for program, rest in found:
        words = shlex.split(rest)
        flags = [word.split("=")[0] for word in words if word.startswith("--")]
        until = next((k for k, word in enumerate(words) if word.startswith("--")), len(words))
        yield program, tuple(words[:until]), flags


@pytest.mark.parametrize(
    ("program", "path"),
    sorted({(p, w[: 2 if p == "a3r" and w[0] == "campaign" else 1]) for p, w, _ in commands()}),
)
def test_every_command_has_the_flags_that_are_written(program, path):
    module = {"swarm": "swarm.cli", "a3r": "a3r"}[program]
    done = subprocess.run(
        [sys.executable, "-m", module, *path, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
    )
    mine = [flags for p, w, flags in commands() if (p, w[: len(path)]) == (program, path)]
    assert not [flag for flags in mine for flag in flags if flag not in done.stdout]


def test_every_make_target_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"^make ([a-z-]+)", GUIDE + UNTESTED, re.M)) <= targets


# --- Slurm -------------------------------------------------------------------------------------------------------

STAND_INS = {
    "scontrol": 'printf "n1\\nn2\\nn3\\nn4\\n"',
    "hostname": 'echo "10.0.0.1 fe80::1"',
    # What a step is told to run, without the step.
    "srun": 'echo "srun $*" >> "$LOG"\nwhile [ "${1#-}" != "$1" ]; do [ "$1" = -w ] || [ "$1" = -x ] && shift; shift; done\n"$@"',
    # It answers once the head was started, and the count is whole once the others were.
    ".venv-verl/bin/ray": (
        'echo "ray $*" >> "$LOG"\nif [ "$1" = status ]; then grep -q "^ray start --head" "$LOG"; fi'
    ),
    ".venv-verl/bin/python": (
        'if [ "$SLURM_NNODES" = 1 ] || grep -q "^ray start --address" "$LOG"; then echo "$SLURM_NNODES"; fi'
    ),
    "sleep": "exec /bin/sleep 0.1",
    ".venv-verl/bin/swarm": 'echo "swarm $*" >> "$LOG"',
}


@pytest.fixture
def job(tmp_path):
    """The recipe's script beside stand-ins for Slurm, Ray and the server."""
    (script,) = blocks("bash")
    (tmp_path / "job.sh").write_text(script, "utf-8")
    for name, body in STAND_INS.items():
        file = tmp_path / name if "/" in name else tmp_path / "slurm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\n{body}\n", "utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def played(job, nodes):
    log = job / "log"
    subprocess.run(
        ["bash", str(job / "job.sh")],
        check=True,
        timeout=60,
        env={
            "PATH": f"{job / 'slurm'}:/usr/bin:/bin",
            "SLURM_SUBMIT_DIR": str(job),
            "SLURM_JOB_NODELIST": "n[1-4]",
            "SLURM_NNODES": str(nodes),
            "LOG": str(log),
        },
    )
    return log.read_text("utf-8").splitlines()


def test_the_slurm_script_is_one_that_bash_reads(job):
    subprocess.run(["bash", "-n", str(job / "job.sh")], check=True, timeout=20)


def test_the_slurm_job_starts_a_head_then_the_others_then_the_server(job):
    lines = played(job, 4)
    said = [line for line in lines if line.startswith(("ray start", "swarm"))]
    assert said[0] == "ray start --head --port=6379 --block"
    assert said[1] == "ray start --address=10.0.0.1:6379 --block"
    assert said[2].startswith("swarm serve --engine verl --config 7b.yaml --start --resume")
    assert any(line.startswith("srun --nodes=3 --ntasks=3 -x n1 ") for line in lines)
    assert lines.index("ray status --address=10.0.0.1:6379") < lines.index(said[1])


def test_a_slurm_job_of_one_node_asks_for_no_others(job):
    lines = played(job, 1)
    assert not any(" -x " in line for line in lines)
    assert lines[-1].startswith("swarm serve ")


# --- Kubernetes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manifest():
    path = ROOT / "deploy/kuberay/verl.yaml"
    found = list(YAML(typ="safe").load_all(path.read_text("utf-8")))
    return {body["kind"]: body for body in found}


def pods(manifest):
    """Each pod of the manifest by what it is for."""
    cluster = manifest["RayCluster"]["spec"]
    (group,) = cluster["workerGroupSpecs"]
    return {
        "head": cluster["headGroupSpec"]["template"]["spec"],
        "gpus": group["template"]["spec"],
        "server": manifest["StatefulSet"]["spec"]["template"]["spec"],
    }


def test_the_manifest_is_in_the_guide_and_every_pod_has_shared_memory_of_its_own(manifest):
    assert "deploy/kuberay/verl.yaml" in GUIDE
    for name, pod in pods(manifest).items():
        (container,) = pod["containers"]
        assert container["image"] == "IMAGE", name
        places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert set(places.values()) == set(volumes), name
        assert volumes[places["/dev/shm"]]["emptyDir"]["medium"] == "Memory", name
        assert name == "head" or places["/shared"], name


def test_the_gpus_of_the_manifest_are_those_that_its_configuration_asks_for(manifest):
    (text,) = manifest["ConfigMap"]["data"].values()
    config = TrainConfig.model_validate(yaml(text))
    (group,) = manifest["RayCluster"]["spec"]["workerGroupSpecs"]
    assert group["replicas"] == group["minReplicas"] == config.verl.nodes
    (container,) = pods(manifest)["gpus"]["containers"]
    for which in ("requests", "limits"):
        resources = container["resources"][which]
        assert int(resources["nvidia.com/gpu"]) == config.verl.gpus_per_node
        assert int(resources["cpu"]) >= 3 * config.verl.gpus_per_node
    assert (config.engine, config.verl.ray_address) == ("verl", "auto")
    assert config.model.path.startswith("/shared/")


def test_the_server_joins_the_cluster_by_its_service_with_its_token_and_gives_it_nothing(manifest):
    name = manifest["RayCluster"]["metadata"]["name"]
    assert manifest["RayCluster"]["spec"]["authOptions"] == {"mode": "token"}
    (container,) = pods(manifest)["server"]["containers"]
    (script,) = container["args"]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=20)
    assert f"ray start --address={name}-head-svc:6379 --num-cpus=0 --num-gpus=0" in script
    (key,) = manifest["ConfigMap"]["data"]
    assert f"--config /config/{key}" in script
    env = {one["name"]: one for one in container["env"]}
    assert env["RAY_AUTH_MODE"]["value"] == "token"
    secret = env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": name, "key": "auth_token"}
