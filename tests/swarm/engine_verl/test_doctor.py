import json
import subprocess
import sys

import pytest

from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl import dependencies, doctor
from swarm.testing.toy_engine import ToyEngine


def test_a_check_that_breaks_is_a_failure_with_its_reason():
    def broken():
        raise OSError("no such disk")

    (found,) = doctor.guarded(broken)
    assert (found.level, found.detail) == ("fail", "OSError: no such disk")


def test_missing_packages_fail_with_how_to_install_them():
    found = doctor.packages()
    missing = dependencies.problems("vllm")
    assert (found.level == "fail") is bool(missing)
    assert all(str(problem) in found.detail for problem in missing)


def test_disk_and_shared_memory_are_told_in_numbers(tmp_path):
    assert "GiB free" in doctor.disk(tmp_path).detail
    assert doctor.shared_memory().name == "shared memory"


def test_what_cannot_be_found_out_is_called_unknown(tmp_path, monkeypatch):
    nowhere = tmp_path / "nowhere"
    monkeypatch.setenv("PATH", str(nowhere))
    looks = [doctor.disk(nowhere), doctor.shared_memory(nowhere), doctor.drivers()]
    assert [check.level for check in looks] == ["warn"] * 3
    assert all(check.detail.startswith("unknown: ") and check.hint for check in looks)


def test_a_driver_that_fails_is_unknown_and_quoted(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        '#!/bin/sh\necho "Failed to initialize NVML: Driver/library mismatch"; exit 18\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "unknown: nvidia-smi says 'Failed to initialize NVML" in doctor.drivers().detail


def test_a_driver_that_answers_tells_how_many_gpus_of_which_kind(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor k in 1 2; do echo 'NVIDIA H200, 570.1, 143771 MiB'; done\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = doctor.drivers()
    assert (found.level, found.detail) == ("ok", "2 x NVIDIA H200, 570.1, 143771 MiB")


def test_an_address_is_asked_only_when_there_is_one():
    assert doctor.ray_cluster(None).level == "ok"


def test_the_command_prints_one_document_and_fails_when_a_check_does():
    done = subprocess.run(
        [sys.executable, "-m", "swarm.cli", "doctor", "--engine", "verl", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    body = json.loads(done.stdout)
    assert {"verl packages", "GPU driver", "NCCL", "disk", "shared memory"} <= {
        check["name"] for check in body["checks"]
    }
    assert done.returncode == (0 if body["ok"] else 1)


def test_the_doctor_knows_one_engine():
    done = subprocess.run(
        [sys.executable, "-m", "swarm.cli", "doctor", "--engine", "vrel", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "--engine verl" in json.loads(done.stdout)["error"]["hint"]


async def test_the_smoke_batch_is_sampled_by_the_engine_itself():
    from swarm.protocol.config import TrainConfig

    engine = ToyEngine()
    await engine.boot(TrainConfig(engine="toy"))
    batch = await doctor.smoke_batch(engine, 1)
    assert len(batch.rows) == 4
    assert all(len(row.logprobs) == row.spans[0].end - row.spans[0].start for row in batch.rows)


@pytest.mark.parametrize("name", ["torch", "toy"])
def test_a_server_bound_to_an_engine_refuses_others(name, tmp_path):
    from swarm.cli.serve import EngineName, engine_factory

    with pytest.raises(ConfigError, match=f"names '{name}'"):
        engine_factory(tmp_path, EngineName.VERL)(name)


def test_a_file_without_an_engine_means_the_one_that_the_server_is_bound_to(tmp_path):
    from swarm.cli.serve import EngineName, read_config

    file = tmp_path / "c.json"
    file.write_text('{"run_name": "x"}')
    assert read_config(file, EngineName.VERL).engine == "verl"
    file.write_text('{"engine": "toy"}')
    assert read_config(file, EngineName.VERL).engine == "toy"
