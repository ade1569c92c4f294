"""The campaign whose first client is broken, through real processes, with a language model over HTTP that is a script."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from a3r.testing.stand_in.mending import mending

# Looked up, not imported: litellm fetches a price list when it is imported, unless told otherwise before.
needs_litellm = pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600), needs_litellm]

CAMPAIGN = Path(__file__).parents[2] / "campaigns" / "broken-client"


def test_a_broken_client_is_repaired_and_the_report_verifies_with_the_diff_in_it(led_by, tmp_path):
    a3r = led_by(mending())
    goal = tmp_path / "goal"
    shutil.copytree(CAMPAIGN, goal)
    text = (goal / "goal.md").read_text(encoding="utf-8")
    # Smaller: one stage of two runs over the toy engine, whose weights are a hash.
    text = text.replace("  steps: 6\n", "  steps: 2\n  engine: toy\n").replace(
        "max_stages: 3", "max_stages: 1"
    )
    (goal / "goal.md").write_text(text.replace("items: 40", "items: 10"), encoding="utf-8")
    done = a3r("campaign", "start", str(goal), "--review", "none", "--watch", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = Path(json.loads(done.stdout)["report"]).parent
    assert a3r("campaign", "verify", str(report)).returncode == 0
    words = (report / "report.md").read_text(encoding="utf-8")
    assert "was repaired (revision 1)" in words
    assert "+    random.Random(seed).shuffle(order)" in words
    assert len(a3r.model.asked) == 1
    shown = a3r("blueprint", "revisions", report.name, "--json")
    rows = json.loads(shown.stdout)["revisions"]
    assert {(r["revision"], r["state"], r["failure"]) for r in rows} == {
        (1, "approved", "data_missing")
    }
    name = f"{report.name}/{rows[0]['blueprint']}"
    assert "+    random.Random(seed)" in a3r("blueprint", "diff", name).stdout
