"""The page of guarantees names tests that exist, and lanes that are played."""

import re
from pathlib import Path

import pytest

from a3r.testing.chaos.lanes import lanes as campaign_lanes
from swarm.testing.chaos.plans import lanes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/concepts/guarantees.md").read_text("utf-8")
SHORT = {
    "S/": "tests/swarm/service/",
    "C/": "tests/swarm/client/",
    "E/": "tests/swarm/engine/",
    "W/": "tests/a3r/worker/",
    "H/": "tests/a3r/hub/",
}
NAMED = sorted(set(re.findall(r"`((?:[SCEWH]/|tests/)[\w/]+\.py)::(test_\w+)`", PAGE)))


def test_every_line_of_a_table_names_what_shows_it():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 30
    assert [row for row in rows if "::test_" not in row and "lane" not in row] == []


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_shows_a_guarantee_exists(file, name):
    for short, long in SHORT.items():
        file = file.replace(short, long) if file.startswith(short) else file
    assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def test_the_lanes_that_show_a_guarantee_are_played():
    played = {lane.name for lane in lanes(seed=0)} | {lane.name for lane in campaign_lanes()}
    cells = re.findall(r"lanes? ((?:`[a-z ]+`(?:, | and |;)?)+)", PAGE)
    cells += re.findall(r"all lanes but ((?:`[a-z ]+`(?:, | and )?)+)", PAGE)
    named = {name for cell in cells for name in re.findall(r"`([a-z ]+)`", cell)}
    assert named
    assert named <= played
