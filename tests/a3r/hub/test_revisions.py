"""Revisions over HTTP: read with their diffs, decided once, and what a worker is given."""

from __future__ import annotations

from typing import Any

import pytest

from a3r.core.hashing import bytes_hash
from a3r.core.types import RevisionState
from a3r.store.revisions import Revised
from a3r.store.store import Store


@pytest.fixture
def pending(study: Any, store: Store) -> Any:
    blueprint = store.blueprints(study.campaign_id)[0]
    sha = store.put_artifact(b"a mended client")
    revised = Revised("a" * 64, sha, "t" * 64, "--- a/client.py\n", "a module is missing")
    store.add_revision([blueprint.id], revised, RevisionState.PENDING, "the leader", 1.0)
    return blueprint


async def test_a_revision_is_shown_with_its_diff_and_listed_with_its_reason(study, pending):
    shown = (await study.api("GET", f"revisions/{study.campaign_id}/{pending.name}")).json()
    assert [r["diff"] for r in shown["revisions"]] == ["--- a/client.py\n"]
    listed = (await study.api("GET", f"campaigns/{study.campaign_id}/revisions")).json()
    (line,) = listed["revisions"]
    assert (line["blueprint"], line["revision"], line["state"]) == (pending.name, 1, "pending")
    assert line["reason"] == "a module is missing"


async def test_an_approved_revision_is_what_a_worker_is_given(study, pending):
    verdict = {"revision": 1, "verdict": "approved", "by": "ada"}
    first = await study.api("POST", f"revisions/{pending.id}", verdict)
    again = await study.api("POST", f"revisions/{pending.id}", verdict)
    assert first.json() == again.json()
    assert first.json()["state"] == "approved"
    spec = await study.claimed()
    assert (spec.revision, spec.client_tree_hash) == (1, "t" * 64)
    assert spec.client_artifact == bytes_hash(b"a mended client")


async def test_a_pending_or_rejected_revision_is_not_given_to_anyone(study, pending):
    assert (await study.claimed(0)).revision == 0
    verdict = {"revision": 1, "verdict": "rejected", "by": "ada"}
    await study.api("POST", f"revisions/{pending.id}", verdict)
    assert (await study.claimed(1)).revision == 0
    other = await study.api("POST", f"revisions/{pending.id}", {**verdict, "verdict": "approved"})
    assert other.status_code == 409


@pytest.mark.parametrize("body", [{"revision": 0}, {"verdict": "pending"}, {"by": ""}])
async def test_what_is_no_verdict_is_refused(study, pending, body):
    whole = {"revision": 1, "verdict": "approved", "by": "ada", **body}
    assert (await study.api("POST", f"revisions/{pending.id}", whole)).status_code in (400, 422)


async def test_a_revision_that_is_not_there_is_named(study, pending):
    verdict = {"revision": 7, "verdict": "approved", "by": "ada"}
    reply = await study.api("POST", f"revisions/{pending.id}", verdict)
    assert reply.status_code == 404
    assert "no revision '7'" in reply.json()["error"]["message"]


async def test_a_campaign_says_which_repaired_clients_wait_for_a_person(study, pending):
    body = (await study.api("GET", f"campaigns/{study.campaign_id}")).json()
    (found,) = body["revisions_to_review"]
    assert (found["blueprint"], found["revision"]) == (pending.name, 1)
    assert body["awaiting_review"] >= 1
