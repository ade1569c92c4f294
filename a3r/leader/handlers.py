"""Who does which kind of job: everything that the leader leaves to a thread because it asks a language model or takes long."""

from __future__ import annotations

from a3r.leader.clients.handlers import client_handlers
from a3r.leader.jobs import Handler
from a3r.leader.llm_planner.interpreting import interpret
from a3r.leader.llm_planner.session import plan_stage
from a3r.leader.understanding.adopting import understand_goal


def leader_handlers() -> dict[str, Handler]:
    """Kind -> handler, for ``a3r.leader.jobs.JobRunner``."""
    return {
        "understand": understand_goal,
        "plan": plan_stage,
        "interpret": interpret,
        **client_handlers(),
    }
