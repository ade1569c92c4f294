"""A cell's estimates come from one revision of its client, and a claim over several says so."""

import pytest

from a3r.core.hashing import content_hash
from a3r.report.claims import compute_claims
from a3r.report.gains import RunGain, run_gains
from a3r.report.question import question_of
from a3r.report.records import BlueprintRecord, Records, RevisionRecord, RunRecord
from a3r.report.study import Study
from a3r.report.verify import verify
from a3r.report.write import write_report
from a3r.testing.edits import one_condition

FRESH = (11, 12, 13, 14)


def repaired(records: Records, levels: dict[float, int], seeds: set[int]) -> Records:
    """Every blueprint has a client; those of ``levels`` were repaired so often, and only ``seeds`` ran the last revision."""

    def with_client(b: BlueprintRecord) -> BlueprintRecord:
        clients = [{"name": "client", "tree_hash": "own"}]
        document = {**b.document, "clients": clients}
        return b.model_copy(update={"document": document, "content_hash": content_hash(document)})

    def level_of(b: BlueprintRecord) -> float:
        return float(b.factors["train_batch_size"] or 0)

    def ran(run: RunRecord) -> RunRecord:
        last = levels.get(level_of(records.blueprint(run.blueprint_id)), 0)
        number = last if run.seed in seeds else 0
        attempts = tuple(a.model_copy(update={"revision": number}) for a in run.attempts)
        return run.model_copy(update={"attempts": attempts})

    revisions = [
        RevisionRecord(
            blueprint_id=b.id,
            ordinal=n,
            tree_hash=f"mended-{n}",
            diff="",
            reason="client_crash",
            state="approved",
            by="the leader",
            at=0.0,
        )
        for b in records.blueprints
        for n in range(1, levels.get(level_of(b), 0) + 1)
    ]
    return records.model_copy(
        update={
            "blueprints": tuple(map(with_client, records.blueprints)),
            "runs": tuple(map(ran, records.runs)),
            "revisions": tuple(revisions),
        }
    )


def gains(records: Records) -> list[RunGain]:
    return run_gains(records, question_of(records.campaign.goal_spec))


@pytest.fixture
def coarse() -> Records:
    return one_condition({1: 0.0, 2: 0.3}, {2: FRESH}, (1, 2))


def test_seeds_that_succeeded_before_a_repair_are_not_pooled_with_those_after_it(coarse):
    found = [g for g in gains(repaired(coarse, {2: 1}, {2, *FRESH})) if g.level == 2]
    before = [g for g in found if g.seed == 1]
    assert all("earlier revision of the client" in g.excluded for g in before)
    assert [g.seed for g in found if g.gain is not None] == [2, *FRESH]


def test_without_a_result_of_the_repaired_client_those_before_it_stay(coarse):
    found = [g for g in gains(repaired(coarse, {2: 1}, set())) if g.level == 2]
    assert all(g.gain is not None and g.client == "own" for g in found)


def test_the_newest_of_several_revisions_counts(coarse):
    mended = repaired(coarse, {2: 2}, {1, *FRESH})
    runs = tuple(
        r.model_copy(update={"attempts": (r.attempts[0].model_copy(update={"revision": 1}),)})
        if r.seed == 2
        else r
        for r in mended.runs
    )
    found = [g for g in gains(mended.model_copy(update={"runs": runs})) if g.level == 2]
    assert {g.client for g in found if g.gain is not None} == {"mended-2"}


def test_a_claim_over_cells_with_different_revisions_says_so(coarse):
    study = Study(repaired(coarse, {2: 1}, {1, 2, *FRESH}))
    claims = compute_claims(study.analysis, study.gains, study.question)
    minimum = next(c for c in claims if c.kind == "minimum")
    assert "ran different revisions of the client (own, mended-1)" in minimum.text
    assert "revisions" not in next(c for c in claims if c.kind == "cell").text


def test_the_same_revision_everywhere_is_not_worth_a_word(coarse):
    study = Study(repaired(coarse, {1: 1, 2: 1}, {1, 2, *FRESH}))
    assert not [c for c in study.claims if "revision" in c.text]


def test_a_report_that_sets_results_aside_counts_them_and_verifies(coarse, tmp_path):
    records = repaired(coarse, {2: 1}, {2, *FRESH})
    folder = write_report(records, tmp_path / "report")
    checks = {c.name: c for c in verify(folder).checks}
    assert checks["claims recomputed"].ok
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "7 of the 8 that succeeded enter the results" in text
    assert "earlier revision of the client" in text
