"""Goals that somebody wrote to break the reader: every one ends in a sentence, soon, and in little memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from a3r.core.errors import GoalError
from a3r.leader.goal_parsing import LONGEST, goal_text, parse_goal

PATH = Path("campaigns/x/goal.md")
LEVELS = "levels: [1, 2, 4, 8, 16, 32, 64]"
pytestmark = pytest.mark.timeout(60)


def aliases_of_aliases() -> str:
    """Eleven lines that stand for 9 ** 11 values."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for above, name in zip("abcdefghij", "bcdefghijk", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{above}'] * 9)}]")
    return "\n".join(lines) + "\n"


def refused(text: str, path: Path = PATH) -> str:
    with pytest.raises(GoalError) as caught:
        parse_goal(text, path)
    assert len(caught.value.message) < 4000
    return caught.value.message


def with_front(goal: str, lines: str) -> str:
    return goal.replace("---\n", f"---\n{lines}", 1)


def test_aliases_that_stand_for_billions_of_values_are_counted_not_expanded(goal_text):
    assert "more than 100000 values" in refused(with_front(goal_text, aliases_of_aliases()))


def test_a_front_matter_of_megabytes_is_refused_before_it_is_parsed(goal_text):
    line = f"pilot2: {'x' * LONGEST}\n"
    assert "characters are too many" in refused(with_front(goal_text, line))


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ("range: [1, 1000000000], scale: linear", "more than 200 levels"),
        (f"levels: {list(range(1, 300))}", "299 levels are too many"),
        (f"levels: [1, 0x{'f' * 5000}]", "20000 bits"),
        (f"levels: [1, {'9' * 5000}]", "not YAML"),
        ("levels: [1, 1e400]", "no finite number"),
        ("levels: [a, 'b\u202ec']", "characters that show"),
        (f"levels: [a, {'b' * 600}]", "longer than 500 characters"),
    ],
)
def test_levels_that_no_campaign_could_run_are_refused(goal_text, levels, told):
    assert told in refused(goal_text.replace(LEVELS, levels))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{coarse: 2", "{coarse: 1000000000"),
        ("confidence: 0.95", "confidence: 0.9999999999"),
    ],
)
def test_counts_and_confidences_have_bounds(goal_text, old, new):
    assert old in goal_text
    assert "less than or equal" in refused(goal_text.replace(old, new))


@pytest.mark.parametrize("name", ['"a\\u0000b"', '"a\\u001b[2Jb"', '"a\\nb"', '"   "', '"\\u202e"'])
def test_a_name_is_one_line_of_characters_that_show(goal_text, name):
    lines = [f"name: {name}" if x.startswith("name:") else x for x in goal_text.splitlines()]
    assert "characters that show" in refused("\n".join(lines))


@pytest.mark.parametrize("key", ["code", "reference", "write_to", "python"])
@pytest.mark.parametrize("value", ['"a/\\u0000b"', "x" * 5000, "~nobody-of-this-name/x", "./loop"])
def test_what_no_file_system_takes_is_told_as_a_mistake(tmp_path, goal_text, key, value):
    (tmp_path / "loop").symlink_to("loop")
    told = refused(with_front(goal_text, f"{key}: {value}\n"), tmp_path / "goal.md")
    assert f"(`{key}`) is no path" in told


def test_a_model_that_no_file_system_takes_is_told_as_a_mistake(tmp_path, goal_text):
    text = goal_text.replace("model: builtin:tiny-calc", f"model: {'x' * 5000}")
    assert "(`model`) is no path" in refused(text, tmp_path / "goal.md")


def test_a_goal_is_a_file_of_bounded_length(tmp_path):
    (tmp_path / "goal.md").write_bytes(b"x" * (LONGEST + 1))
    with pytest.raises(GoalError, match="longer than"):
        goal_text(tmp_path)
    os.mkfifo(tmp_path / "pipe.md")
    for odd in (tmp_path / "pipe.md", Path("/dev/zero")):
        with pytest.raises(GoalError, match="no file"):
            goal_text(odd)
