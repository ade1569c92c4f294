"""A goal in prose whose task is its own: read, planned and its client written through a language model that is a script."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from a3r.testing.stand_in.prose_study import prose_study
from a3r.testing.stand_in.script import task_of

# Looked up, not imported: litellm fetches a price list when it is imported, unless told otherwise before.
needs_litellm = pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600), needs_litellm]

CAMPAIGN = Path(__file__).parents[2] / "campaigns" / "in-prose"
# Smaller, by what a person adds above the prose: two steps over the toy engine, whose weights are a hash.
ADDED = """---
settings: {engine: toy, steps: 2}
metric: {items: 10}
seeds: {coarse: 1, replicate: 2}
budget: {max_runs: 9, max_stages: 2}
---
"""


def test_prose_leads_to_a_verified_report_of_a_task_that_no_template_has(led_by, tmp_path):
    a3r = led_by(prose_study())
    goal = tmp_path / "goal"
    shutil.copytree(CAMPAIGN, goal)
    text = (goal / "goal.md").read_text(encoding="utf-8")
    (goal / "goal.md").write_text(ADDED + text, encoding="utf-8")
    done = a3r("campaign", "start", str(goal), "--review", "none", "--watch", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = Path(json.loads(done.stdout)["report"]).parent
    assert a3r("campaign", "verify", str(report)).returncode == 0
    asked = {task_of(request) for request in a3r.model.asked}
    assert asked == {"understand", "plan", "write_client", "interpret"}
    words = (report / "report.md").read_text(encoding="utf-8")
    assert "No second turn" in words
    assert "tool first" in words
    bundle = tmp_path / "study.tar.gz"
    packed = a3r("campaign", "export", report.name, "--to", str(bundle))
    assert packed.returncode == 0, packed.stderr
    assert a3r("campaign", "verify", str(bundle)).returncode == 0


def test_the_shipped_goal_is_read_as_its_script_reads_it(led_by):
    a3r = led_by(prose_study())
    found = a3r("campaign", "check", str(CAMPAIGN), "--json")
    assert found.returncode == 0, found.stdout + found.stderr
    assert json.loads(found.stdout)["mistakes"] == []
