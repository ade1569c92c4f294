"""Records from the database: reads only. The planner and the report get the same object.

``Cut`` says how much of each append-only list a report saw, so the same export can be made again later for ``verify``.
Paths of this machine are replaced in free text; what is hashed (goal, plans, blueprints) is left as it is.
"""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from a3r.core.types import RevisionState
from a3r.report.cleaning import Cleaner
from a3r.report.history import History, history
from a3r.report.ledger import ledger
from a3r.report.records import (
    AttemptRecord,
    BlueprintRecord,
    CampaignRecord,
    Cut,
    EvalRecord,
    ItemRecord,
    Records,
    RunRecord,
    StageRecord,
    StepRecord,
)
from a3r.store.rows import REUSED, AttemptRow, CampaignRow, RunRow

if TYPE_CHECKING:  # verifying a folder needs no database library
    from a3r.store.store import Store

PACKAGES = ("a3r", "torch", "numpy", "scipy", "matplotlib", "pydantic", "sqlmodel", "tokenizers")
PRIVATE = frozenset({"host", "hostname", "user", "cwd", "path", "home", "seat"})


def records_from_store(
    store: Store, campaign_id: str, like: CampaignRecord | None = None
) -> Records:
    """Everything that the database holds of a campaign.

    Args:
        store: the open database.
        campaign_id: its id, a unique prefix, or its name.
        like: the campaign as an earlier export recorded it; the export then stops where that one did and takes over its environment.

    Raises:
        NotFound: no such campaign.
    """
    campaign = store.campaign(campaign_id)
    text = Cleaner(store.folder.parent)
    cut = like.cut if like else None
    lists = history(store, campaign.id, cut, text)
    kept = ledger(store, campaign.id, cut, text)
    cut = cut or Cut(
        event_seq=lists.events[-1].seq if lists.events else 0,
        decisions=len(lists.decisions),
        deviations=len(lists.deviations),
        reviews=len(lists.reviews),
        amendments=len(kept.amendments),
        revisions=len(kept.revisions),
        calls=len(kept.calls),
    )
    rows = store.runs(campaign.id)
    evals, steps = _evidence(store, rows, text)
    return Records(
        campaign=_campaign(campaign, lists, cut, like.environment if like else environment(store)),
        stages=_stages(store, campaign.id),
        blueprints=_blueprints(store, campaign.id),
        runs=_runs(store, campaign.id, rows, text),
        evals=evals,
        steps=steps,
        reviews=lists.reviews,
        decisions=lists.decisions,
        deviations=lists.deviations,
        amendments=kept.amendments,
        revisions=kept.revisions,
        calls=kept.calls,
        events=lists.events,
    )


def environment(store: Store) -> dict[str, Any]:
    """Versions of the software here, and what each worker said of its machine (no names, no paths)."""
    out: dict[str, Any] = {"software": _software()}
    for number, worker in enumerate(store.workers(), start=1):
        known = {k: v for k, v in worker.inventory.items() if k not in PRIVATE}
        out[f"worker {number}"] = {"slots": worker.slots, **known}
    return out


@cache
def _software() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.system()}
    found["machine"] = platform.machine()
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _campaign(
    row: CampaignRow, lists: History, cut: Cut, environment: dict[str, Any]
) -> CampaignRecord:
    ends = [d.what for d in lists.decisions if d.what.startswith("conclude")]
    ending = "running" if not ends else "stopped" if "stopped" in ends[-1] else "concluded"
    return CampaignRecord(
        id=row.id,
        name=row.name,
        ending=ending,
        failure=row.failure if ending == "stopped" else None,
        review_mode=row.review_mode.value,
        planner=row.planner,
        created_at=row.created_at,
        goal_text=row.goal_text,
        goal_spec=row.goal_spec,
        environment=environment,
        cut=cut,
    )


def _stages(store: Store, campaign_id: str) -> tuple[StageRecord, ...]:
    return tuple(
        StageRecord(
            id=s.id,
            ordinal=s.ordinal,
            kind=s.kind,
            state=s.state.value,
            plan=s.plan,
            plan_hash=s.plan_hash,
            created_at=s.created_at,
        )
        for s in store.stages(campaign_id)
    )


def _blueprints(store: Store, campaign_id: str) -> tuple[BlueprintRecord, ...]:
    revised = {
        r.blueprint_id: r.tree_hash
        for r in store.revisions(campaign_id)
        if r.state is RevisionState.APPROVED
    }
    return tuple(
        BlueprintRecord(
            id=b.id,
            stage_id=b.stage_id,
            name=b.name,
            version=b.version,
            content_hash=b.content_hash,
            # With the client that its runs ended with: a later stage starts with the repaired one, and both are the same cell.
            cell_hash=b.blueprint.with_client(revised[b.id]).cell_hash()
            if b.id in revised
            else b.cell_hash,
            review=b.review.value,
            document=b.document,
        )
        for b in store.blueprints(campaign_id)
    )


def _runs(
    store: Store, campaign_id: str, rows: list[RunRow], text: Cleaner
) -> tuple[RunRecord, ...]:
    attempts: dict[str, list[AttemptRow]] = {}
    for attempt in sorted(store.attempts(campaign_id), key=lambda a: a.ordinal):
        attempts.setdefault(attempt.run_id, []).append(attempt)
    return tuple(
        RunRecord(
            id=run.id,
            blueprint_id=run.blueprint_id,
            seed=run.seed,
            state=run.state.value,
            reason=text.text(
                ": ".join(x for x in (run.failure.value if run.failure else "", run.reason) if x)
            ),
            accepted_attempt=run.accepted_attempt,
            attempts=tuple(_attempt(a, text) for a in attempts.get(run.id, [])),
        )
        for run in rows
    )


def _attempt(row: AttemptRow, text: Cleaner) -> AttemptRecord:
    return AttemptRecord(
        id=row.id,
        run_id=row.run_id,
        ordinal=row.ordinal,
        state=row.state.value,
        failure=row.failure.value if row.failure else None,
        reason=text.text(row.reason),
        worker=row.worker_id or "",
        started_at=row.leased_at,
        finished_at=row.ended_at,
        summary=text.data({k: v for k, v in row.summary.items() if k != REUSED}),
        placement=text.data(row.placement),
        revision=row.revision,
        reused=text.text(str(row.summary.get(REUSED) or "")),
    )


def _evidence(
    store: Store, rows: list[RunRow], text: Cleaner
) -> tuple[tuple[EvalRecord, ...], tuple[StepRecord, ...]]:
    evals: list[EvalRecord] = []
    steps: list[StepRecord] = []
    wanted = [name for name in StepRecord.model_fields if name != "run_id"]
    for run in rows:
        if run.accepted_attempt is None:
            continue
        for found in store.eval_rounds(run.accepted_attempt):
            body = found.model_dump(mode="json", exclude={"fencing_token", "items"})
            items = [
                ItemRecord.model_validate(
                    {**i.model_dump(mode="json"), "reason": text.text(i.reason)}
                )
                for i in found.items
            ]
            evals.append(
                EvalRecord(
                    run_id=run.id, attempt_id=run.accepted_attempt, **body, items=tuple(items)
                )
            )
        steps.extend(
            StepRecord.model_validate({"run_id": run.id, **{k: s[k] for k in wanted if k in s}})
            for s in store.steps(run.accepted_attempt)
        )
    return tuple(evals), tuple(steps)
