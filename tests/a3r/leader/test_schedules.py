"""Schedules fire once for each due time, never two campaigns at once, and say what was missed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from a3r.core.errors import GoalError, NotFound
from a3r.core.types import CampaignState, ReviewMode
from a3r.leader.cron import Cron
from a3r.leader.firing import fire_due
from a3r.store.store import Store


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def shown(times: list[float], zone: str = "UTC") -> list[str]:
    return [f"{datetime.fromtimestamp(t, ZoneInfo(zone)):%a %m-%d %H:%M}" for t in times]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 2 * * 1", ["Mon"]),
        ("0 2 * * 0", ["Sun"]),
        ("0 2 * * 7", ["Sun"]),
        ("0 2 * * mon-fri", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("0 2 * * 1-5", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("0 2 * * FRI-1", ["Mon", "Fri", "Sat", "Sun"]),
        ("0 2 * * */2", ["Tue", "Thu", "Sat", "Sun"]),
        ("0 2 * * 1,3", ["Mon", "Wed"]),
    ],
)
def test_weekdays_count_from_sunday_as_in_a_crontab(expression: str, days: list[str]):
    # 2026-06-01 is a Monday
    found = Cron(expression).due(at("2026-06-01"), at("2026-06-07 23:00"))
    assert [x[:3] for x in shown(found)] == days


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "0 2 * *",
        "0 2 * * 8",
        "61 2 * * *",
        "0 2 1 * 1",
        "0 2 30 2 *",
        "a b c d e",
        "0 2 * * 1-x",
    ],
)
def test_what_is_no_expression_or_never_due_is_refused_with_a_hint(expression: str):
    with pytest.raises(GoalError) as caught:
        Cron(expression)
    assert caught.value.hint


def test_an_unknown_zone_is_refused():
    with pytest.raises(GoalError, match="Nowhere/At_all"):
        Cron("0 2 * * *", "Nowhere/At_all")


def test_local_time_is_kept_over_a_change_of_the_clock():
    zone = "Europe/Berlin"  # summer time begins on 2026-03-29 at 02:00
    found = Cron("0 4 * * *", zone).due(at("2026-03-27", zone), at("2026-03-31", zone))
    assert shown(found, zone) == [
        "Fri 03-27 04:00",
        "Sat 03-28 04:00",
        "Sun 03-29 04:00",
        "Mon 03-30 04:00",
    ]
    assert [f"{datetime.fromtimestamp(t, UTC):%H}" for t in found] == ["03", "03", "02", "02"]


@dataclass
class Clock:
    now: float

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Goal:
    name: str = "nightly"
    planner: str = "sweep"
    review: ReviewMode = ReviewMode.STAGE

    @property
    def spec(self) -> dict[str, Any]:
        return {"capacity": 1}


def read(text: str, folder: str) -> Goal:
    if "bad" in text:
        raise GoalError("line 3: no factor\nmore", hint="")
    return Goal()


@dataclass
class Rig:
    store: Store
    clock: Clock
    goal: Path
    schedule: str

    def fire(self, when: str) -> int:
        self.clock.now = at(when)
        return fire_due(self.store, self.clock, read)

    @property
    def story(self) -> list[str]:
        return self.store.schedules()[0].detail.splitlines()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    clock = Clock(at("2026-06-01 00:00"))
    goal = tmp_path / "goal.md"
    goal.write_text("good")
    with Store.open(tmp_path / "a3r.db", clock) as store:
        made = store.add_schedule(str(goal), "0 2 * * *", "UTC", {"review": "none"}, clock.now)
        yield Rig(store, clock, goal, made.id)


def test_a_due_time_starts_one_campaign_however_often_it_is_looked_at(rig: Rig):
    assert [rig.fire(f"2026-06-01 {t}") for t in ("01:59", "02:00", "02:00", "02:30")] == [
        0,
        1,
        0,
        0,
    ]
    (campaign,) = rig.store.campaigns()
    assert (campaign.name, campaign.review_mode) == ("nightly", ReviewMode.NONE)
    assert rig.store.schedules()[0].campaign_id == campaign.id
    assert rig.story[-1] == f"2026-06-01 02:00 UTC: started campaign {campaign.id}"
    kinds = [e.kind for e in rig.store.events(campaign.id)]
    assert "campaign_scheduled" in kinds


def test_never_two_at_once_and_the_skip_is_said(rig: Rig):
    rig.fire("2026-06-01 02:00")
    (campaign,) = rig.store.campaigns()
    assert rig.fire("2026-06-02 02:00") == 0
    assert rig.story[-1] == f"2026-06-02 02:00 UTC: skipped, campaign {campaign.id} is not over"
    rig.store.set_campaign_state(campaign.id, CampaignState.DONE, report_path="r")
    assert rig.fire("2026-06-03 02:00") == 1


def test_a_late_firing_is_made_up_and_older_ones_are_said_to_be_missed(rig: Rig):
    assert rig.fire("2026-06-04 02:40") == 1
    assert rig.story[0] == (
        "2026-06-01 02:00 UTC to 2026-06-03 02:00 UTC: 3 firings missed, no daemon ran"
    )
    assert "2026-06-04 02:00 UTC: started" in rig.story[-1]


def test_a_firing_that_is_too_late_is_missed_and_not_repeated(rig: Rig):
    assert [rig.fire("2026-06-01 09:00"), rig.fire("2026-06-01 09:01")] == [0, 0]
    assert rig.story == ["2026-06-01 02:00 UTC: missed, no daemon ran"]
    assert rig.store.campaigns() == []


@pytest.mark.parametrize("spoil", [lambda p: p.write_text("bad"), lambda p: p.unlink()])
def test_a_goal_that_can_not_be_used_is_said_and_tried_again_next_time(
    rig: Rig, spoil: Callable[[Path], None]
):
    spoil(rig.goal)
    assert rig.fire("2026-06-01 02:00") == 0
    assert "not started, the goal can not be used:" in rig.story[-1]
    rig.goal.write_text("good")
    assert rig.fire("2026-06-02 02:00") == 1


def test_a_daemon_that_dies_while_it_files_the_campaign_starts_it_when_it_is_back(rig: Rig):
    def dies(text: str, folder: str) -> Goal:
        class Unwritable(Goal):
            @property
            def spec(self) -> dict[str, Any]:
                return {"capacity": object()}

        return Unwritable()

    rig.clock.now = at("2026-06-01 02:00")
    with pytest.raises(TypeError):
        fire_due(rig.store, rig.clock, dies)
    assert (rig.store.campaigns(), rig.store.schedules()[0].fired_at) == ([], None)
    assert rig.fire("2026-06-01 02:10") == 1
    assert len(rig.store.campaigns()) == 1


def test_adding_the_same_twice_keeps_one_and_a_removed_one_is_silent(rig: Rig):
    again = rig.store.add_schedule(str(rig.goal), "0 2 * * *", "UTC", {}, rig.clock.now)
    assert (again.id, again.options) == (rig.schedule, {})
    rig.store.remove_schedule(rig.schedule)
    assert rig.fire("2026-06-01 02:00") == 0
    assert rig.store.take_firing(rig.schedule, rig.clock.now, ["due"]) is False
    with pytest.raises(NotFound):
        rig.store.remove_schedule(rig.schedule)


def test_the_story_of_a_schedule_stays_short(rig: Rig):
    rig.store.take_firing(rig.schedule, rig.clock.now, [f"line {n}" for n in range(50)])
    assert (len(rig.story), rig.story[-1]) == (20, "line 49")
