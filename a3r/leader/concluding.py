"""The last step: write the report, check it as a stranger would, and close the campaign."""

from __future__ import annotations

from pathlib import Path

from a3r.core.errors import VerificationFailed
from a3r.core.types import CampaignState
from a3r.leader.findings import file_findings
from a3r.leader.llm_planner.interpreting import interpreted
from a3r.leader.tick import Tick
from a3r.report.verify import verify
from a3r.report.write import write_report

REPORTS = "reports"


def conclude(tick: Tick) -> bool:
    """Write ``reports/<campaign id>/`` unless a verified one is there (written before a crash), file findings, then finish.

    With a language model its interpretation is waited for first, within bounds; False while it is. A report always appears.

    Raises:
        VerificationFailed: the report does not follow from its own records.
    """
    if not interpreted(tick):
        return False
    folder, records = _written_before(tick), tick.records()
    if folder is None:
        folder = write_report(records, tick.workspace.project / REPORTS / tick.id)
        _check(tick, folder)
    file_findings(tick, records, f"{REPORTS}/{folder.name}")
    stopped = any(d.what == "conclude: stopped" for d in tick.store.decisions(tick.id))
    tick.store.set_campaign_state(
        tick.id,
        CampaignState.STOPPED if stopped else CampaignState.DONE,
        failure=tick.campaign.failure,
        report_path=str(folder),
    )
    return True


def _written_before(tick: Tick) -> Path | None:
    folder = tick.workspace.project / REPORTS / tick.id
    if not folder.is_dir():
        return None
    return folder if verify(folder, tick.store).ok else None


def _check(tick: Tick, folder: Path) -> None:
    report = verify(folder, tick.store)
    if not report.ok:
        failed = "; ".join(f"{c.name}: {c.detail}" for c in report.checks if not c.ok)
        raise VerificationFailed(
            f"The report {str(folder)!r} does not follow from its records: {failed}",
            hint="This is a fault of a3r; the records in the folder are complete.",
        )
