"""A failed test is run once more, and how it failed is shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLAKY = """
from pathlib import Path

def test_once(tmp_path_factory):
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "only the first time"

def test_always():
    assert {outcome}
"""


def run(folder, outcome, *options):
    (folder / "test_flaky.py").write_text(FLAKY.format(outcome=outcome))
    [told] = re.findall(r"--reruns \d+", (ROOT / "Makefile").read_text())
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *told.split(), *options, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_passes_the_second_time_passes_and_its_failure_is_shown(tmp_path):
    done = run(tmp_path, "True")
    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 rerun" in done.stdout
    assert "run again and passed" in done.stdout
    assert "AssertionError: only the first time" in done.stdout


@pytest.mark.parametrize(
    ("outcome", "options", "code"), [("False", [], 1), ("True", ["--fail-on-flaky"], 7)]
)
def test_what_fails_twice_fails_and_a_hunt_for_races_ends_at_the_first(
    tmp_path, outcome, options, code
):
    assert run(tmp_path, outcome, *options).returncode == code
