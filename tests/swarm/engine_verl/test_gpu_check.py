import re
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.protocol.config import TrainConfig
from swarm.testing.gpu_check.cases import CASES, chosen
from swarm.testing.gpu_check.report import Outcome, as_json, as_markdown

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/gpu-untested.md").read_text("utf-8")


def test_the_page_of_what_is_untested_names_each_check_and_no_other():
    assert set(re.findall(r"`((?:verl|torch)-[a-z0-9-]+)`", PAGE)) == {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_configuration_of_a_check_is_valid(case):
    body = {"engine": case.engine, "verl": dict(case.verl), "algorithm": dict(case.algorithm)}
    TrainConfig.model_validate(body)


def test_all_checks_together_fit_into_their_time_when_nothing_hangs():
    one_gpu, _ = chosen([], 1)
    assert all(case.timeout_s <= 240 for case in one_gpu)


def test_a_check_that_needs_more_gpus_is_skipped_and_says_so():
    run, skipped = chosen([], 1)
    assert {case.gpus for case in run} == {1}
    assert all("needs 2 GPUs" in why for _, why in skipped)
    assert len(run) + len(skipped) == len(CASES)


def test_a_failed_check_fails_the_report_and_a_skipped_one_is_listed():
    bad = [{"name": "an_update_moves", "ok": False, "detail": "the gap | is 0.7"}]
    outcomes = [
        Outcome("a", "", "failed", 3.0, "an_update_moves", bad),
        Outcome("b", "", "skipped", 0.0, "needs 2 GPUs"),
    ]
    record = as_json(outcomes, {"gpus": ["H200, 570, 1, 1"], "versions": {"torch": "2"}})
    assert (record["ok"], record["failed"], record["skipped"]) == (False, ["a"], ["b"])
    text = as_markdown(record)
    assert "| a | failed | 3 |" in text
    assert "the gap / is 0.7" in text


def test_without_a_gpu_nothing_is_run_and_nothing_is_claimed(tmp_path):
    command = [sys.executable, "-m", "swarm.testing.gpu_check", "--report", str(tmp_path / "r")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": str(tmp_path)},
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "no GPU" in done.stderr
    assert not (tmp_path / "r").exists()


def test_an_unknown_check_is_refused_with_those_there_are(tmp_path):
    command = [sys.executable, "-m", "swarm.testing.gpu_check", "--without-gpu", "nonsense"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert done.returncode == 2
    assert "verl-lora" in done.stderr
