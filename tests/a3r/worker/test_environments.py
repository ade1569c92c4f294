import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from a3r.blueprints.model import EnvironmentSpec, SandboxSpec
from a3r.core.errors import BlueprintError
from a3r.core.types import FailureClass
from a3r.testing.waiting import retry_until as until
from a3r.worker.containers import Container, reap
from a3r.worker.environments import Environments, SecretMissing
from a3r.worker.processes import ProcessState
from a3r.worker.venv_build import Unmade, base_requirements, build

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(120),
]


@pytest.fixture
def host(tmp_path):
    return Environments(tmp_path, {"PATH": os.environ["PATH"], "KEY_A": "of the worker"})


def test_inherit_is_this_interpreter_and_a_proxy_leaves_loopback_alone(host):
    ready = host.ready(EnvironmentSpec(proxy="http://proxy:3128", variables={"X": "1"}))
    assert (ready.argv, ready.variables["X"]) == ((sys.executable,), "1")
    assert ready.variables["HTTPS_PROXY"] == "http://proxy:3128"
    assert "127.0.0.1" in ready.variables["NO_PROXY"]
    told = host.describe(ready, "client")
    assert told["version"] == sys.version.split()[0]
    assert told["variables"][0] == "HTTPS_PROXY"


def test_another_python_of_the_host_is_found_by_name_and_one_that_is_not_there_is_refused(host):
    with pytest.raises(BlueprintError, match="no Python 'python9'"):
        host.ready(EnvironmentSpec(kind="python", python="python9"))
    ready = host.ready(EnvironmentSpec(kind="python", python=sys.executable))
    assert host.describe(ready, "client")["python"] == sys.executable
    bare = host.ready(EnvironmentSpec(kind="python", python="/bin/sh"))
    with pytest.raises(BlueprintError, match="no Python that answers"):
        host.describe(bare, "client")


def test_secrets_are_looked_up_on_the_host_and_never_shown(host, tmp_path):
    file = tmp_path / "secrets.env"
    file.write_text("# mine\nexport KEY_B='of the file'\nKEY_A=not this\n")
    file.chmod(0o600)
    ready = host.ready(EnvironmentSpec(secret_names=("KEY_B",)), ("KEY_A",))
    assert ready.secrets == {"KEY_A": "of the worker", "KEY_B": "of the file"}
    assert "of the file" not in repr(ready)
    assert "of the file" not in json.dumps(host.describe(ready, "client"))
    with pytest.raises(SecretMissing, match="'KEY_C' is not set"):
        host.ready(EnvironmentSpec(secret_names=("KEY_C",)))
    file.chmod(0o644)
    with pytest.raises(SecretMissing, match="can be read by others"):
        host.ready(EnvironmentSpec(secret_names=("KEY_B",)))
    for name in ("A3R_NONCE", "LD_PRELOAD"):
        with pytest.raises(BlueprintError, match="a3r's own"):
            host.ready(EnvironmentSpec(variables={name: "x"}))


def test_a_secret_reaches_its_process_and_stays_in_no_file(bench):
    code = "import os; print(len(os.environ['KEY_A']), os.environ['X'])"
    process = bench.start(code, env={"X": "set"}, secrets={"KEY_A": "a very secret word"})
    bench.ended(process)
    assert b"18 set" in bench.log().read_bytes()
    files = [p for p in bench.folder.rglob("*") if p.is_file()]
    assert not any(b"very secret" in p.read_bytes() for p in files)


def test_a_venv_lies_over_the_worker_s_packages_and_is_made_once(host, tmp_path):
    package = tmp_path / "ein Paket"
    package.mkdir()
    (package / "extra_words.py").write_text("WORD = 'installed'\n")
    (package / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='extra-words', version='1.5', py_modules=['extra_words'])\n"
    )
    spec = EnvironmentSpec(kind="venv", requirements=("--no-build-isolation", str(package)))
    recipe = host.recipe(spec, "client")
    build(recipe)
    made = host.venv(spec) / "ready.json"
    first = made.stat().st_mtime_ns
    assert host.recipe(spec, "client") is None
    build(recipe)
    assert made.stat().st_mtime_ns == first
    ready = host.ready(spec)
    code = "import extra_words, swarm.client, pydantic, sys; print(extra_words.WORD, sys.prefix)"
    done = subprocess.run([*ready.argv, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout.split(" ", 1) == ["installed", f"{host.venv(spec)}\n"], done.stderr
    told = host.describe(ready, "client")
    assert told["requirements"] == list(spec.requirements)
    assert "extra-words==1.5" in (host.venv(spec) / "packages.txt").read_text().replace("_", "-")
    made.unlink()  # as after a kill: what is there is not trusted
    assert host.recipe(spec, "client") is not None


def test_requirements_that_name_changing_files_are_refused(host):
    for line in ("-r requirements.txt", "-e ."):
        with pytest.raises(BlueprintError, match="may change"):
            host.recipe(EnvironmentSpec(kind="venv", requirements=(line,)), "client")


def test_the_base_of_a_foreign_venv_is_what_swarm_needs():
    client, server = base_requirements(()), base_requirements(("server", "train"))
    assert any(line.startswith("pydantic") for line in client)
    assert not any(line.startswith("torch") for line in client)
    assert any(line.startswith("torch") for line in server)


@pytest.fixture
def engine(tmp_path):
    """A container engine that writes down what it is asked and knows one container."""
    path = tmp_path / "bin" / "docker"
    path.parent.mkdir()
    path.write_text(
        f"""#!/bin/sh
printf '%s\\n' "$*" >> {tmp_path}/asked
case "$1" in
image) echo sha256:abc;;
ps) echo c1;;
esac
"""
    )
    path.chmod(0o755)
    return str(path)


def test_a_container_gets_names_of_secrets_its_folders_and_walls(engine, tmp_path):
    container = Container(engine, "image:1")
    argv, record = container.argv(
        ["python", "/code/client.py"], nonce="n1", cwd=tmp_path, readable=[tmp_path / "code"],
        writable=[tmp_path / "work"], names=["KEY_A"], sandbox=SandboxSpec(memory_mb=512), gpus=[1, 2],
    )  # fmt: skip
    line = " ".join(argv)
    assert line.endswith("image:1 python /code/client.py")
    for part in (f"{tmp_path}/code:{tmp_path}/code:ro", "a3r.nonce=n1", "--env KEY_A ", "--memory 512m",
                 "--cap-drop ALL", '--gpus "device=1,2"'):  # fmt: skip
        assert part in line
    assert "network" in record.not_enforced
    assert container.digest() == "sha256:abc"
    assert reap("n1", str(Path(engine).parent)) == 1
    assert "rm --force c1" in (tmp_path / "asked").read_text()
    with pytest.raises(Exception, match="no container engine"):
        Environments(tmp_path, {"PATH": "/nowhere"}).ready(
            EnvironmentSpec(kind="container", image="x")
        )


@pytest.mark.long
def test_an_attempt_makes_its_venv_waits_for_a_secret_and_runs_with_both(lab):
    environment = EnvironmentSpec(kind="venv", secret_names=("MY_KEY",))
    given = lab.blueprint()
    client = given.clients[0].model_copy(update={"environment": environment})
    attempt = lab.queue(given.model_copy(update={"clients": (client,)}))
    lab.worker()
    until(lambda: lab.folder().memo().blocked, 60)
    assert "MY_KEY" in lab.folder().memo().blocked
    assert lab.folder().memo().blocked_class is FailureClass.AUTH
    file = lab.home / "secrets.env"
    file.touch(0o600)
    file.write_text("MY_KEY=word\n")
    report = lab.finished(attempt, 100)
    assert report.outcome == "succeeded", lab.story(attempt)
    assert report.summary["environments"]["client"]["environment"]["kind"] == "venv"
    assert lab.folder().latest("environment-2").state() is ProcessState.EXITED
    assert {"blocked", "unblocked"} & set(attempt.kinds())


def test_a_package_that_there_is_not_is_named_where_the_attempt_says_why(tmp_path):
    folder = tmp_path / "venv"
    wanted = ["no-such-package-of-anybody==1", "--no-index"]
    recipe = {"folder": str(folder), "python": sys.executable, "requirements": wanted}
    with pytest.raises(Unmade, match="ERROR: No matching distribution found for no-such-package"):
        build({**recipe, "overlay": True, "need": "client"})
    assert not (folder / "ready.json").exists()
