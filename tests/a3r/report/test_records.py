"""Rows of a campaign are found by what they belong to."""

import pytest

from a3r.report.records import Records


def test_rounds_and_steps_of_a_run_are_found_in_their_order(records: Records) -> None:
    for found in records.evals:
        assert records.round(found.run_id, found.name) is found
    for run in records.runs:
        assert records.run(run.id) is run
        assert records.steps_of(run.id) == [s for s in records.steps if s.run_id == run.id]
    assert records.round("no run", "final") is None
    assert records.steps_of("no run") == []
    with pytest.raises(KeyError):
        records.run("no run")


def test_records_that_were_copied_with_other_rows_find_those(records: Records) -> None:
    one = records.evals[0]
    assert records.round(one.run_id, one.name) is one
    without = records.model_copy(update={"evals": records.evals[1:]})
    assert without.round(one.run_id, one.name) is None
    assert records.round(one.run_id, one.name) is one
    assert records == records.model_copy()
