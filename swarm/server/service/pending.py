"""What a batch that was committed and not trained says of its step, after the step that follows was opened (asynchronous mode)."""

from __future__ import annotations

from typing import Any

from swarm.server.journal.records import CommittedBatch
from swarm.server.service.core import EPISODE_DROPPED, Core
from swarm.server.service.groups import Pool
from swarm.server.service.metrics import Ledger
from swarm.server.service.policy_record import policy_fields


def policy_of(core: Core, pending: CommittedBatch) -> dict[str, Any]:
    """Return the fields of ``StepMetrics`` that the policy fills, for the step of ``pending``."""
    done = core.journal.step_metrics(pending.batch.step - 2)
    owed = done[-1].mix_owed if done else {}
    config = core.journal.config_at(pending.batch.step - 1) or core.config
    return policy_fields(core, pending.groups, Pool(pending.batch.step - 1, config.batch, owed))


def ledger_of(core: Core, pending: CommittedBatch) -> Ledger:
    """Return the account of the step of ``pending`` without what the batch itself consumed."""
    ledger, mark, seen = Ledger(), (core.incarnation, pending.batch.step - 1), 0
    while page := core.journal.events_after(seen):
        seen = page[-1].seq
        for event in page:
            data = event.data
            if (
                data.get("incarnation"),
                data.get("step"),
            ) == mark and event.kind == EPISODE_DROPPED:
                ledger.restore_drop(data)
    return ledger
