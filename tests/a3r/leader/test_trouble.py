"""A leader in trouble: errors, deaths at every write, writers at the same time, writes that never succeed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from a3r.core.errors import Conflict
from a3r.core.placement import Offer
from a3r.core.types import AttemptState, CampaignState
from a3r.report.files import read_records
from a3r.report.render import claims_of
from a3r.store.store import Store
from tests.a3r.leader.rig import Rig


def test_an_unexpected_error_blocks_its_campaign_and_no_other(rig, caplog):
    broken, healthy = rig.start("broken"), rig.start("healthy")

    class Torn(Store):
        def stages(self, campaign_id):
            if campaign_id == broken:
                raise ZeroDivisionError("torn page")
            return super().stages(campaign_id)

    rig.store.close()
    rig.store = Torn.open(rig.workspace.database, rig.clock)
    rig.worker.store = rig.store
    rig.until_quiet()
    row = rig.row(broken)
    assert row.state is CampaignState.BLOCKED
    assert row.failure == "ZeroDivisionError: torn page"
    assert rig.row(healthy).state is CampaignState.DONE
    assert "Traceback" in caplog.text


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it."""


HARMLESS = (
    "held_attempts", "last_event_seq", "campaign", "campaigns", "stages", "blueprints", "blueprint", "reviews", "approved", "may_run", "runs", "run", "pending_work",
    "attempts", "attempts_of_run", "attempts_of_worker", "attempt", "steps", "eval_rounds", "events", "decisions", "deviations",
    "workers", "artifact", "log_path", "log_names", "read_log", "close", "open", "put_artifact",
    "revisions", "revision", "revision_in_force", "jobs", "job", "amendments", "findings", "search_findings", "llm_calls", "calls_of",
    "llm_spent", "command", "open_commands", "wanted_of", "worker_token", "worker_tokens",
)  # fmt: skip
"""Reads, and the artifact that is named by its own bytes; after everything else the next write must be a new one."""


def mortal(rig: Rig, *, before: bool) -> Store:
    """A store whose first write kills the process, just before or just after it."""

    class Mortal(Store):
        pass

    def wrap(name):
        original = getattr(Store, name)

        def method(self, *args, **kwargs):
            if not before:
                original(self, *args, **kwargs)
            raise Killed(name)

        return method

    for name, _ in inspect.getmembers(Store, inspect.isfunction):
        if not name.startswith("_") and name not in HARMLESS:
            setattr(Mortal, name, wrap(name))
    return Mortal.open(rig.workspace.database, rig.clock)


def conclusions(rig: Rig, campaign: str) -> list[tuple]:
    folder = Path(rig.row(campaign).report_path)
    return [(c.id, c.kind, c.text, c.values) for c in claims_of(read_records(folder))]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_leader_that_is_killed_before_or_after_every_write_reaches_the_same_conclusions(
    tmp_path, small
):
    untouched = Rig(tmp_path / "untouched", small)
    wanted = untouched.start()
    untouched.until_quiet()
    tortured = Rig(tmp_path / "tortured", small)
    campaign = tortured.start()
    deaths = 0
    for number in range(400):
        store = mortal(tortured, before=number % 2 == 0)
        try:
            assert not tortured.tick(store)  # a leader that wrote something did not live to say so
            died = False
        except Killed:
            deaths, died = deaths + 1, True
        finally:
            store.close()
        worked = number % 3 == 0 and tortured.worker.work()
        if not died and not worked and not tortured.worker.work():
            break
    assert deaths > 80
    assert tortured.row(campaign).state is CampaignState.DONE
    assert conclusions(tortured, campaign) == conclusions(untouched, wanted)
    decisions = [d.what for d in tortured.store.decisions(campaign)]
    assert decisions == [d.what for d in untouched.store.decisions(wanted)]
    assert len(tortured.store.runs(campaign)) == len(untouched.store.runs(wanted))
    assert [p.name for p in (tortured.folder / "reports").iterdir()] == [campaign]
    for rig in (untouched, tortured):
        rig.close()


def test_the_wall_clock_budget_ends_an_attempt_that_waits_for_a_person(rig):
    campaign = rig.start()
    rig.tick()
    held = rig.worker.hold()
    now = rig.clock.time()
    token, blocked = held.fencing_token, AttemptState.BLOCKED
    rig.store.renew(held.id, token, blocked, 1, "out_of_credit", now, 15)
    rig.clock.at += 21 * 60
    rig.until_quiet()
    asked = rig.store.attempt(held.id)
    assert "wall clock" in (asked.stop_reason or "")
    rig.worker.obey(asked)
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE


def test_used_up_gpu_hours_let_nothing_new_begin(rig):
    rig.goal_text = rig.goal_text.replace("wall_clock_min: 20", "gpu_hours: 4").replace(
        "settings:\n", "settings:\n  gpus: 2\n"
    )
    campaign = rig.start()
    rig.tick()
    offer = Offer(slots=1, gpus=(0, 1))
    held = rig.store.claim_attempt("w", rig.clock.time(), 15.0, offer)
    assert held.placement["gpus"]
    rig.clock.at += 1.9 * 3600
    rig.tick()
    assert [r.state.value for r in rig.store.runs(campaign)].count("cancelled") == 0
    rig.clock.at += 0.2 * 3600
    rig.until_quiet()
    cancelled = [r for r in rig.store.runs(campaign) if r.state.value == "cancelled"]
    assert len(cancelled) == 3
    assert {r.reason for r in cancelled} == {"the budget of GPU hours was used up"}
    rig.worker.finish(rig.store.attempt(held.id))
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE
    assert rig.store.decisions(campaign)[-1].what == "conclude: gpu_hours"


def test_a_campaign_that_others_write_to_all_the_time_is_not_blocked_for_it(rig):
    campaign = rig.start()

    class Contended(Store):
        calls = 0

        def queue_attempt(self, run_id, at):
            self.calls += 1
            if self.calls % 2 == 0:
                raise Conflict("somebody was faster")
            return super().queue_attempt(run_id, at)

    rig.store.close()
    rig.store = Contended.open(rig.workspace.database, rig.clock)
    rig.worker.store = rig.store
    rig.until_quiet()
    assert rig.row(campaign).state is CampaignState.DONE


def test_a_write_that_can_never_succeed_blocks_instead_of_being_tried_for_ever(rig):
    campaign = rig.start()

    class Refusing(Store):
        def queue_attempt(self, run_id, at):
            raise Conflict("this never works")

    rig.store.close()
    rig.store = Refusing.open(rig.workspace.database, rig.clock)
    rig.worker.store = rig.store
    rig.until_quiet()
    row = rig.row(campaign)
    assert (row.state, row.failure) == (CampaignState.BLOCKED, "Conflict: this never works")
