from __future__ import annotations

from a3r.core.workspace import Workspace
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_text import read_front_matter, validated
from a3r.leader.understanding.checks import understand
from a3r.leader.understanding.reading import Reading
from a3r.leader.understanding.shelf import keep_reading, kept_reading
from a3r.leader.understanding.telling import front_matter, reading_lines


def understood(goal_b, reading_b, path):
    found, faults = understand(Reading.model_validate(reading_b), goal_b, {}, path)
    assert faults == []
    return found


def test_a_reading_as_front_matter_gives_the_same_goal(tmp_path, goal_b, reading_b):
    path = tmp_path / "goal.md"
    found = understood(goal_b, reading_b, path)
    text = f"{front_matter(found)}\n{goal_b}"
    again = validated(read_front_matter(text, path), path)
    assert again == GoalSpec.model_validate(found.goal_spec)


def test_every_key_is_shown_with_the_goals_words_or_as_an_assumption(tmp_path, goal_b, reading_b):
    lines = reading_lines(understood(goal_b, reading_b, tmp_path / "goal.md"))
    text = "\n".join(lines)
    for source in reading_b["sources"]:
        assert source["key"] in text
    assert "factors.max_response_length_in_one_turn: ASSUMED" in text
    assert "\x1b" not in text


def test_a_reading_is_kept_by_the_goals_text(tmp_path, goal_b, reading_b):
    workspace = Workspace.create(tmp_path / ".a3r")
    found = understood(goal_b, reading_b, tmp_path / "goal.md")
    assert kept_reading(workspace, goal_b) is None
    path = keep_reading(workspace, goal_b, found)
    assert kept_reading(workspace, goal_b) == found
    assert kept_reading(workspace, goal_b + " ") is None
    path.write_text("{", encoding="utf-8")
    assert kept_reading(workspace, goal_b) is None
