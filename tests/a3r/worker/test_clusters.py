"""The end of an attempt whose server ran on a Ray cluster: its engine's leftovers are freed by the server's own command."""

import json
import sys

import pytest

from a3r.blueprints.model import EnvironmentSpec
from a3r.worker.clusters import reap_clusters
from a3r.worker.environments import Environments
from a3r.worker.folder import AttemptFolder
from swarm.protocol.config import TrainConfig

ADDRESS = "10.0.0.1:6379"
FREED = {"groups": ["swarm-x-0"], "actors": [], "processes": {"10.0.0.2": [7]}, "silent": []}


@pytest.fixture
def interpreter(tmp_path):
    """Stands for the interpreter of the server's environment: notes what it is asked, and answers."""

    def make(answer):
        script = tmp_path / "python"
        log = tmp_path / "asked"
        script.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(log)!r}, 'w').write(repr(sys.argv[1:]))\nprint({answer!r})\n"
        )
        script.chmod(0o755)
        return EnvironmentSpec(kind="python", python=str(script)), log

    return make


def blueprint_of(lab, environment, **train):
    plain = lab.blueprint()
    config = TrainConfig.model_validate({"engine": "verl", **train})
    server = plain.servers[0].model_copy(update={"train": config, "environment": environment})
    return plain.model_copy(update={"servers": (server,)})


def reaped(tmp_path, blueprint):
    folder = AttemptFolder(tmp_path / "runs" / "a-1")
    folder.server.mkdir(parents=True)
    return reap_clusters(folder, blueprint, Environments(tmp_path, {})), folder


def test_the_engine_of_a_server_on_a_cluster_is_reaped_by_its_state_directory(
    lab, interpreter, tmp_path
):
    environment, log = interpreter(json.dumps(FREED))
    found, folder = reaped(tmp_path, blueprint_of(lab, environment, verl={"ray_address": ADDRESS}))
    assert found == {"policy": FREED}
    asked = ["-P", "-m", "swarm.cli", "reap", "--json", "--state-dir", str(folder.server)]
    assert log.read_text() == repr([*asked, "--address", ADDRESS])


@pytest.mark.parametrize("train", [{}, {"engine": "toy", "verl": {"ray_address": ADDRESS}}])
def test_a_server_that_ran_on_no_cluster_has_nothing_to_reap(lab, interpreter, tmp_path, train):
    environment, log = interpreter("{}")
    assert reaped(tmp_path, blueprint_of(lab, environment, **train))[0] == {}
    assert not log.exists()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (json.dumps({"error": {"code": "x", "message": "no head", "hint": ""}}), "no head"),
        ("no json", "Expecting value"),
    ],
)
def test_a_cluster_that_does_not_answer_is_told_and_ends_nothing(
    lab, interpreter, tmp_path, answer, told
):
    environment, _ = interpreter(answer)
    found, _ = reaped(tmp_path, blueprint_of(lab, environment, verl={"ray_address": ADDRESS}))
    assert told in found["policy"]["error"]
