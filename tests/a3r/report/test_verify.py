"""Verification catches what was changed, offline, and says what it proves."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from a3r.core.errors import VerificationFailed
from a3r.report.differences import first_difference
from a3r.report.records import Records
from a3r.report.render import render
from a3r.report.verify import Check, verify
from a3r.report.write import write_report
from a3r.testing.edits import with_item, with_run
from a3r.testing.records import synthetic_records, two_condition_stages

Seal = Callable[[Path], None]


def failed(folder: Path) -> Check:
    report = verify(folder)
    assert report.level == "nothing"
    assert not report.ok
    return report.checks[-1]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_untouched_report_is_self_consistent(folder: Path):
    report = verify(folder)
    assert [c for c in report.checks if not c.ok] == []
    assert report.level == "self-consistent"
    report.require()


def test_edited_number_is_named_with_its_line_even_when_the_manifest_is_made_to_fit(
    folder: Path, seal: Seal
):
    edit(folder / "report.md", "| 1 coarse | 16 |", "| 1 coarse | 17 |")
    assert "'report.md' is not the file that was written" in failed(folder).detail
    seal(folder)
    check = failed(folder)
    assert check.name == "report.md equals its render"
    assert "| 1 coarse | 16 |" in check.detail
    assert "| 1 coarse | 17 |" in check.detail
    with pytest.raises(VerificationFailed, match="line") as caught:
        verify(folder).require()
    assert caught.value.exit_code == 5


def test_a_thousand_single_digit_edits_are_all_caught(folder: Path, seal: Seal, records: Records):
    rng, wanted = random.Random(7), render(records)
    assert (folder / "report.md").read_text() == wanted
    digits = [i for i, c in enumerate(wanted) if c.isdigit()]
    edits: list[str] = []
    for _ in range(1000):
        at = rng.choice(digits)
        other = rng.choice([d for d in "0123456789" if d != wanted[at]])
        edits.append(wanted[:at] + other + wanted[at + 1 :])
        line = wanted.count("\n", 0, at) + 1
        assert f"line {line}," in first_difference(wanted.encode(), edits[-1].encode())
    for changed in edits[:8]:  # the comparison above is what verify does; these go the whole way
        (folder / "report.md").write_text(changed)
        seal(folder)
        assert failed(folder).name == "report.md equals its render"


def test_swapped_condition_names_in_a_sentence_are_caught(folder: Path, seal: Seal):
    path = folder / "report.md"
    old = "At max_response_tokens 10, the smallest"
    edit(path, old, "At max_response_tokens 16, the smallest")
    seal(folder)
    assert failed(folder).name == "report.md equals its render"


def test_swapped_claims_are_caught(folder: Path, seal: Seal):
    edit(folder / "claims.json", "max_response_tokens 10", "max_response_tokens 16")
    seal(folder)
    assert failed(folder).name == "claims recomputed"


def test_edited_evaluation_item_is_caught(folder: Path, seal: Seal):
    edit(folder / "records/items.csv", "\n1,39,0,=", "\n1,39,1,=")
    seal(folder)
    check = failed(folder)
    assert (check.name, check.ok) == (
        "claims recomputed",
        False,
    )  # an exploratory cell: the noise floor


def test_edited_figure_data_and_drawing_are_caught(folder: Path, seal: Seal):
    svg = folder / "figures/gain-by-level.svg"
    edit(svg, "held-out gain", "held-out loss")
    assert "gain-by-level.svg" in failed(folder).detail
    edit(svg, "held-out loss", "held-out gain")
    edit(folder / "figures/gain-by-level.json", '"n": 4', '"n": 5')
    seal(folder)
    assert failed(folder).name == "figure data recomputed"


def test_removed_run_is_caught(records: Records, tmp_path: Path, rewrite, folder: Path):
    """Whoever removes the row of a run, but not its plan, is told; the plan is hashed into its blueprint."""
    honest = (folder / "report.md").read_bytes()
    rewrite(folder, records.model_copy(update={"runs": records.runs[1:]}))
    assert verify(folder).ok  # consistent in itself: the run now counts as not run
    assert b"1 were not run" in (folder / "report.md").read_bytes()
    (folder / "report.md").write_bytes(honest)
    assert "report.md" in failed(folder).detail


def test_removed_seed_in_a_plan_is_caught_by_its_hash(records: Records, rewrite, folder: Path):
    first = records.blueprints[0]
    shorter = first.model_copy(update={"document": {**first.document, "seeds": [2]}})
    rewrite(folder, records.model_copy(update={"blueprints": (shorter, *records.blueprints[1:])}))
    check = failed(folder)
    assert check.name == "plans precede runs"
    assert first.name in check.detail


def test_changed_prediction_is_caught_by_its_hash(records: Records, rewrite, folder: Path):
    stage = records.stages[0]
    told = stage.model_copy(update={"plan": {**stage.plan, "predictions": ["I knew it."]}})
    rewrite(folder, records.model_copy(update={"stages": (told, *records.stages[1:])}))
    assert failed(folder).detail == "the plan of stage 1 was changed"


def test_plan_made_after_its_runs_is_caught(records: Records, rewrite, folder: Path):
    late = records.stages[0].model_copy(
        update={"created_at": records.runs[-1].attempts[0].started_at}
    )
    rewrite(folder, records.model_copy(update={"stages": (late, *records.stages[1:])}))
    assert "began before its plan" in failed(folder).detail


def test_missing_and_extra_files_are_caught(folder: Path, seal: Seal):
    (folder / "notes.txt").write_text("all is well")
    assert "'notes.txt' is not in the manifest" in failed(folder).detail
    seal(folder)
    assert failed(folder).name == "no other files"
    (folder / "notes.txt").unlink()
    (folder / "figures/learning-curves.svg").unlink()
    assert "missing file 'figures/learning-curves.svg'" in failed(folder).detail
    seal(folder)
    assert "missing file 'figures/learning-curves.svg'" in failed(folder).detail


def test_succeeded_run_without_all_its_steps_is_caught(records: Records, rewrite, folder: Path):
    rewrite(folder, records.model_copy(update={"steps": records.steps[:-1]}))
    assert "step records are not 1 to 5" in failed(folder).detail


def test_succeeded_run_without_its_final_round_is_caught(records: Records, rewrite, folder: Path):
    rewrite(folder, records.model_copy(update={"evals": records.evals[:-1]}))
    assert "no final round" in failed(folder).detail


def test_a_known_result_in_a_confirmatory_stage_is_caught(records: Records, rewrite, folder: Path):
    run = records.runs[-1]
    taken = run.attempts[0].model_copy(update={"reused": "older/run-1", "started_at": None})
    rewrite(folder, with_run(records, len(records.runs) - 1, attempts=(taken,)))
    assert "took over a result that was known before (older/run-1)" in failed(folder).detail


def test_torn_records_are_a_false_check_and_not_a_crash(folder: Path, seal: Seal):
    edit(folder / "records/runs.json", '"blueprint_id": "bp-1-1-10"', '"blueprint_id": "nobody"')
    seal(folder)
    assert failed(folder).name == "records fit together"
    (folder / "manifest.json").write_text("{}")
    assert failed(folder).name == "manifest"
    assert failed(folder / "nowhere").detail.startswith("manifest.json can not be read")


def test_links_and_pipes_in_place_of_files_are_a_false_check(folder: Path):
    kept = {name: (folder / name).read_bytes() for name in ("report.md", "manifest.json")}
    for name in kept:
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        assert "no plain file" in failed(folder).detail
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert "no plain file" in failed(folder).detail
        (folder / name).unlink()
        (folder / name).write_bytes(kept[name])


@pytest.mark.parametrize("text", ["[" * 200_000, '{"format": 1e999, "sha256": {}}', "null", '"x"'])
def test_a_manifest_that_is_no_manifest_is_a_false_check(folder: Path, text: str):
    (folder / "manifest.json").write_text(text)
    assert not failed(folder).ok


def test_consistently_forged_report_passes_as_self_consistent_only(
    records: Records, rewrite, folder: Path
):
    rewrite(folder, with_item(records, 1, 39, reward=1.0))
    report = verify(folder)
    assert report.ok
    assert report.level == "self-consistent"
    assert "not that the records are true" in report.limits


def test_report_has_the_same_bytes_in_another_process_zone_and_hash_order(
    written: Path, tmp_path: Path
):
    script = (
        "import sys; from pathlib import Path; from a3r.testing.records import *;"
        "from a3r.report.write import write_report;"
        "write_report(synthetic_records(two_condition_stages()), Path(sys.argv[1]))"
    )
    environment = {
        "PYTHONHASHSEED": "2",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "PATH": "/usr/bin:/bin",
    }
    argv = [sys.executable, "-c", script, str(tmp_path / "b")]
    subprocess.run(argv, check=True, env=environment)
    files = sorted(p.relative_to(written) for p in written.rglob("*.*"))
    assert len(files) == 28
    for file in files:
        assert (written / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_verify_needs_no_drawing_and_no_database_library():
    code = "import sys, a3r.report.verify; print(sorted({'matplotlib', 'sqlmodel', 'sqlalchemy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_report_never_overwrites_and_leaves_nothing_half_written(records: Records, tmp_path: Path):
    first, second = (write_report(records, tmp_path / "ä b" / "r") for _ in range(2))
    assert (first.name, second.name) == ("r", "r-2")
    assert sorted(p.name for p in first.parent.iterdir()) == ["r", "r-2"]
    assert verify(second).ok


def test_every_outcome_of_a_run_can_be_reported_and_verified(tmp_path: Path, records: Records):
    worst = synthetic_records(two_condition_stages(), spread=0.3)
    odd = with_run(worst, 0, state="failed", accepted_attempt=None, reason="x")
    odd = odd.model_copy(
        update={
            "evals": tuple(e for e in odd.evals if e.run_id != odd.runs[0].id),
            "steps": tuple(s for s in odd.steps if s.run_id != odd.runs[0].id),
        }
    )
    nothing = records.model_copy(
        update={
            "runs": (),
            "evals": (),
            "steps": (),
            "stages": (),
            "blueprints": (),
            "decisions": (),
        }
    )
    for number, each in enumerate((odd, nothing)):
        path = write_report(each, tmp_path / str(number))
        report = verify(path)
        assert report.ok, report.checks[-1]
