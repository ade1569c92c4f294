"""A campaign that was filed as prose: have the goal read by a job, then freeze the campaign on what was understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from a3r.core.ports import Clock
from a3r.core.types import CampaignState, JobState
from a3r.leader.goal import GoalSpec
from a3r.leader.goal_paths import path_mistakes
from a3r.leader.job_words import job_failed
from a3r.leader.jobs import JobContext
from a3r.leader.llm.names import plain_name
from a3r.leader.understanding.reading import Understanding
from a3r.leader.understanding.session import PURPOSE, read_prose
from a3r.leader.understanding.shelf import kept_reading
from a3r.report.coverage import READING
from a3r.store.rows import CampaignRow
from a3r.store.store import Store

SUBJECT = "goal"


def understand_goal(context: JobContext) -> dict[str, Any]:
    """The handler of ``understand`` jobs: an ``Understanding`` as JSON. What ``a3r campaign check`` showed is taken, not read again.

    Raises:
        GoalError, ReplyInvalid, ModelError: see ``read_prose``.
    """
    text = context.campaign.goal_text
    kept = kept_reading(context.workspace, text)
    if kept is not None:
        return kept.model_dump(mode="json")
    found = read_prose(context.desk, text, context.goal_dir / "goal.md")
    calls = [c for c in context.store.llm_calls(context.campaign.id) if c.purpose == PURPOSE]
    by = plain_name(calls[-1].model) if calls else ""
    return found.model_copy(update={"model": by}).model_dump(mode="json")


def adopt(store: Store, clock: Clock, campaign: CampaignRow) -> bool:
    """File the job, wait for it, freeze the campaign; True when something was written.

    What the goal points at and is not there blocks the campaign; a resume looks again.

    Raises:
        JobFailed: the goal could not be read.
    """
    job_id = f"{campaign.id}/{PURPOSE}/{SUBJECT}"
    job = store.ensure_job(job_id, campaign.id, PURPOSE, {}, clock.time())
    if job.state is JobState.FAILED:
        raise job_failed(job, "the goal can not be read")
    if job.state is not JobState.DONE:
        return False
    found = Understanding.model_validate(job.result)
    spec = GoalSpec.model_validate(found.goal_spec)
    missing = [m.text for m in path_mistakes(spec, Path(campaign.goal_dir))]
    if missing:
        return _wait_for_paths(store, campaign, missing)
    _record(store, clock, campaign, found)
    store.set_goal_spec(campaign.id, found.goal_spec)
    return True


def _wait_for_paths(store: Store, campaign: CampaignRow, missing: list[str]) -> bool:
    listed = "\n".join(f"- {text}" for text in missing)
    failure = (
        f"the goal was understood, but something that it names is not there:\n{listed}\n"
        "hint: put it there, then `a3r campaign resume` looks again"
    )
    store.set_campaign_state(campaign.id, CampaignState.BLOCKED, failure=failure)
    return True


def _record(store: Store, clock: Clock, campaign: CampaignRow, found: Understanding) -> None:
    """The decision, once; its evidence holds each key with the goal's words."""
    if any(d.what == READING for d in store.decisions(campaign.id)):
        return
    assumed = ", ".join(a.key for a in found.assumptions) or "nothing"
    why = (
        f"Read from prose by {found.model or 'a language model'}: {len(found.sources)} keys quote the goal's own words; "
        f"assumed: {assumed}."
    )
    evidence = {
        "sources": [s.model_dump() for s in found.sources],
        "assumptions": [a.model_dump() for a in found.assumptions],
        "in_words": list(found.in_words),
    }
    store.add_decision(campaign.id, None, READING, why, evidence, clock.time())
