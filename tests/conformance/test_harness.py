"""The outside checks check something: a program without any framework passes, and a wrong tree is told."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.outcome import Outcome, Verdict
from conformance.report import LIMITS, write_report
from conformance.rig import AGENTS, open_rig
from conformance.scenario import plain_calls, spoken_calls
from conformance.tree import ONE_TREE, SPOKEN_TREE, broken_ids, differences, tree_of


@pytest.mark.parametrize(
    ("scenario", "expected"), [(plain_calls, ONE_TREE), (spoken_calls, SPOKEN_TREE)]
)
def test_plain_http_leaves_the_one_tree_behind(tmp_path: Path, scenario, expected) -> None:
    with open_rig(tmp_path) as rig:
        ran = rig.run([sys.executable, str(AGENTS / "raw_http.py")], scenario)
    assert ran.returncode == 0, ran.output
    assert differences(tree_of(ran.trace), expected) == []
    assert broken_ids(ran.trace) == []


def test_a_program_that_fails_is_seen(tmp_path: Path) -> None:
    with open_rig(tmp_path) as rig:
        ran = rig.run([sys.executable, "-c", "import sys; print('no'); sys.exit(3)"], plain_calls)
        assert rig.untrained([ran.trace.episode_id]) == ["nothing was captured"]
    assert (ran.returncode, ran.output) == (3, "no\n")


def test_every_difference_between_trees_is_named() -> None:
    other = [replace(ONE_TREE[0], text="x"), replace(ONE_TREE[1], parent=None), ONE_TREE[2]]
    assert len(differences(other, ONE_TREE)) == 2
    assert differences(ONE_TREE[:2], ONE_TREE) == ["2 calls, expected 3"]


def test_the_report_has_a_row_a_check_and_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "conformance.md"
    outcomes = [
        Outcome("sdks", "a|b", Verdict.PASSED, "x 1"),
        Outcome("frameworks", "c", Verdict.MISSING, "y", f"{Path.cwd()}: no\nsuch <thing>"),
    ]
    write_report(outcomes, path)
    text = path.read_text()
    assert "| a/b | passed | x 1 |  |" in text
    assert "| c | not installed | y | .: no such &lt;thing> |" in text
    assert text.endswith(LIMITS)
