"""A repaired client: filed once, taken by the next claim, disclosed with its diff, decided by a person where one must."""

from typing import Any

import pytest

from a3r.core.errors import Conflict, NotFound
from a3r.core.types import CampaignState, RevisionState
from a3r.store.revisions import Revised
from a3r.store.store import Store

DIFF = "--- a/client.py\n+++ b/client.py\n@@ -1 +1 @@\n-import nothing\n+import json\n"


def revised(letter: str = "b", base: str = "a", **evidence: Any) -> Revised:
    return Revised(base * 64, letter * 64, letter * 64, DIFF, "a module is missing", evidence)


def test_the_next_claim_takes_the_newest_approved_revision(study: Any, store: Store) -> None:
    run = study.run()
    first = study.claimed(run)
    assert first.revision == 0
    study.finish(first, "failed")
    store.queue_attempt(run.id, 2.0)
    store.add_revision([run.blueprint_id], revised(), RevisionState.APPROVED, "leader", 3.0)
    second = store.claim_attempt("w1", 4.0, 10.0)
    assert second is not None
    assert second.revision == 1
    found = store.revision_in_force(run.blueprint_id)
    assert found is not None
    assert (found.ordinal, found.artifact_sha) == (1, "b" * 64)


def test_an_approved_revision_is_a_deviation_that_names_it_and_is_filed_once(
    study: Any, store: Store
) -> None:
    run = study.run()
    attempt = study.claimed(run)
    args = (revised(attempt=attempt.id, failure="import_error"), RevisionState.APPROVED, "leader")
    rows = store.add_revision([run.blueprint_id], *args, 3.0)
    assert store.add_revision([run.blueprint_id], *args, 9.0) == rows
    (told,) = store.deviations(study.campaign_id)
    assert told.attempt_id == attempt.id
    assert [r.diff for r in rows if r.id == told.data["revision_id"]] == [DIFF]
    assert (told.data["revision"], told.data["failure"]) == (1, "import_error")
    assert told.what == "the client of b16 was repaired (revision 1)"


def test_a_pending_revision_changes_nothing_before_a_person_decides(
    study: Any, store: Store
) -> None:
    run = study.run()
    (row,) = store.add_revision([run.blueprint_id], revised(), RevisionState.PENDING, "leader", 3.0)
    assert study.claimed(run).revision == 0
    assert store.deviations(study.campaign_id) == []
    decided = store.decide_revision(row.id, RevisionState.APPROVED, "ada", 5.0)
    assert (decided.state, decided.by, decided.decided_at) == (RevisionState.APPROVED, "ada", 5.0)
    assert store.decide_revision(row.id, RevisionState.APPROVED, "ada", 6.0) == decided
    assert [d.data["by"] for d in store.deviations(study.campaign_id)] == ["ada"]
    with pytest.raises(Conflict, match="is approved"):
        store.decide_revision(row.id, RevisionState.REJECTED, "bob", 7.0)


def test_a_rejected_revision_is_never_in_force(study: Any, store: Store) -> None:
    run = study.run()
    (row,) = store.add_revision([run.blueprint_id], revised(), RevisionState.PENDING, "leader", 3.0)
    store.decide_revision(row.id, RevisionState.REJECTED, "ada", 5.0)
    assert store.revision_in_force(run.blueprint_id) is None
    rows = store.add_revision(
        [run.blueprint_id], revised("c"), RevisionState.APPROVED, "leader", 6.0
    )
    assert rows[0].ordinal == 2
    assert store.revision(run.blueprint_id, 2).artifact_sha == "c" * 64
    with pytest.raises(NotFound, match="no revision '3'"):
        store.revision(run.blueprint_id, 3)


def test_each_revision_has_attempts_of_its_own(study: Any, store: Store) -> None:
    run = study.run()
    for _ in range(2):
        study.finish(study.claimed(run), "failed")
    with pytest.raises(Conflict, match="used its 2 attempts"):
        store.queue_attempt(run.id, 2.0)
    store.add_revision([run.blueprint_id], revised(), RevisionState.APPROVED, "leader", 3.0)
    assert study.claimed(run).ordinal == 3


def test_a_campaign_that_is_over_takes_no_revision(study: Any, store: Store) -> None:
    run = study.run()
    store.set_campaign_state(study.campaign_id, CampaignState.STOPPED)
    with pytest.raises(Conflict, match="no longer revised"):
        store.add_revision([run.blueprint_id], revised(), RevisionState.APPROVED, "leader", 3.0)
