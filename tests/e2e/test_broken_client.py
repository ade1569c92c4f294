"""The campaign whose first client is broken, through real processes, with a language model over HTTP that is a script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from a3r.testing.stand_in.mending import mending
from a3r.testing.stand_in.server import StandIn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CAMPAIGN = Path(__file__).parents[2] / "campaigns" / "broken-client"
pytest.importorskip("litellm")


@pytest.fixture
def a3r(tmp_path):
    """The command in a workspace of its own; its daemon is ended."""
    with StandIn(mending()) as model:
        env = {k: v for k, v in os.environ.items() if not k.startswith("A3R_")}
        env |= {
            "A3R_HOME": str(tmp_path / "Ort mit Ü" / ".a3r"),
            "A3R_LLM": "openai/stand-in",
            "A3R_LLM_BASE_URL": model.url,
            "A3R_LLM_PRICE": "1,4",
            "OPENAI_API_KEY": "none",
            "OMP_NUM_THREADS": "1",
        }

        def run(*arguments, timeout=420):
            return subprocess.run(
                [sys.executable, "-c", "from a3r.cli import main; main()", *arguments],
                env=env,
                capture_output=True,
                text=True,
                timeout=timeout,
            )

        run.model = model
        yield run
        with suppress(subprocess.TimeoutExpired):
            run("daemon", "stop", timeout=30)


def test_a_broken_client_is_repaired_and_the_report_verifies_with_the_diff_in_it(a3r, tmp_path):
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
