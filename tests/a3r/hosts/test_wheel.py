"""The wheel that another host gets: installed from nothing but itself, it is what runs here."""

import subprocess
import sys
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from a3r.hosts import far_end
from a3r.hosts.wheel import Wheel, own_tree, own_wheel


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    return own_wheel()


def test_the_wheel_installs_offline_and_holds_the_very_same_files(
    wheel: Wheel, tmp_path: Path
) -> None:
    (tmp_path / wheel.name).write_bytes(wheel.data)
    target = tmp_path / "Ziel ü"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(tmp_path / wheel.name)], check=True)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{target}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    assert far_end.installed(str(python)) == {"version": wheel.version, "tree": wheel.tree}
    assert (wheel.version, wheel.tree) == own_tree()


def test_the_same_files_give_the_same_bytes(wheel: Wheel) -> None:
    assert own_wheel().data == wheel.data


def test_its_requirements_are_those_of_today_and_can_be_read_by_any_installer(wheel: Wheel) -> None:
    with zipfile.ZipFile(BytesIO(wheel.data)) as parts:
        name = next(n for n in parts.namelist() if n.endswith(".dist-info/METADATA"))
        lines = parts.read(name).decode().splitlines()
    needs = [Requirement(x.partition(": ")[2]) for x in lines if x.startswith("Requires-Dist: ")]
    names = {need.name for need in needs}
    assert {"pydantic", "prometheus-client", "sqlmodel", "torch"} <= names
    only = [need for need in needs if need.name == "uvloop"]
    assert all(need.marker is not None for need in only)
    assert not any(need.marker.evaluate({"extra": ""}) for need in only if need.marker)


def test_pins_name_exact_versions_and_leave_the_build_of_torch_open(wheel: Wheel) -> None:
    pins = [line for line in wheel.pins.splitlines() if line and not line.startswith("#")]
    assert all("==" in line for line in pins)
    torch = [line for line in pins if line.startswith("torch==")]
    assert torch == [f"torch=={metadata.version('torch').partition('+')[0]}"]


def test_an_interpreter_without_a3r_or_none_at_all_has_none(tmp_path: Path) -> None:
    assert far_end.installed(str(tmp_path / "nowhere")) is None
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)
    assert far_end.installed(str(bare)) is None
