"""A failed job in code's own words.

What the job itself says may quote a model's reply or a provider's answer, and a campaign's failure is printed in its report: so
the failure names the kind of trouble only, and ``a3r campaign show`` has the job's own text.
"""

from __future__ import annotations

from a3r.core.errors import JobFailed
from a3r.store.rows import JobRow

_WHY = {
    "reply_invalid": "no reply of the language model could be used",
    "model_refused": "the language model can not be asked (key, credit, price, name or settings)",
    "model_unavailable": "the language model does not answer",
    "budget_spent": "the budget does not allow another call of the language model",
    "job_failed": "its journal no longer fits what it would ask",
    "blueprint_invalid": "nothing that was made passed its checks",
    "goal_invalid": "the goal can not be used as it is",
}


def why(job: JobRow) -> str:
    """The kind of trouble."""
    code = str((job.result or {}).get("code") or "")
    return _WHY.get(code, "it could not be done")


def job_failed(job: JobRow, name: str) -> JobFailed:
    """The error of a failed job; ``details["reason"]`` is its code. ``name``: what it was to do."""
    told = job.result or {}
    return JobFailed(
        f"{name}: {why(job)}; `a3r campaign show` has its own words",
        hint=str(told.get("hint") or ""),
        job=job.id,
        reason=told.get("code"),
    )
