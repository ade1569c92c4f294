"""What every command promises: help, one JSON document, exit codes, error and hint on stderr."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from a3r.core.types import ReviewMode
from a3r.core.workspace import Workspace
from a3r.report.export import records_from_store
from a3r.report.write import write_report
from a3r.store.store import Store
from a3r.testing.records import synthetic_goal, synthetic_records, two_condition_stages

COMMANDS = {
    "campaign": "start check list show watch resume stop report verify export amend schedule reuse",
    "blueprint": "list show approve reject revisions diff",
    "run": "list show logs attach cancel retry trace",
    "worker": "start list token drain resume",
    "host": "add check list drain resume remove",
    "pool": "add list show remove",
    "findings": "search list",
    "daemon": "status stop",
    "config": "show",
}


def test_help_answers_at_once_and_without_heavy_imports() -> None:
    code = (
        "import sys, time; t = time.perf_counter(); from a3r.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'sqlmodel', 'fastapi', 'scipy', 'matplotlib', 'rich', 'pydantic'} & set(sys.modules)\n"
        "print(time.perf_counter() - t, sorted(heavy), file=sys.stderr)"
    )
    best, heavy = 9.0, ""
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert "campaign" in done.stdout
        seconds, heavy = done.stderr.split(" ", 1)
        best = min(best, float(seconds))
        if best < 0.3:
            break
        time.sleep(0.2)
    assert heavy.strip() == "[]"
    assert best < 0.3


@pytest.mark.parametrize("noun", COMMANDS)
def test_every_command_has_help(a3r: Any, noun: str) -> None:
    for verb in COMMANDS[noun].split():
        shown = a3r(noun, verb, "--help")
        assert shown.code == 0
        assert f"a3r {noun} {verb}" in shown.out
        words = [line for line in shown.out.splitlines()[1:] if line.strip()]
        assert len(words[0].strip()) > 20, f"{noun} {verb} does not say what it does"
        for line in shown.out.splitlines():
            option = line.strip().split("  ")
            if line.startswith("  --") and option[0] != "--help":
                assert len(option) > 1, f"{noun} {verb}: no help for {line}"


def test_doctor_has_help(a3r: Any) -> None:
    assert "Exit codes" in a3r("doctor", "--help").out


def test_wrong_usage_exits_2_with_a_hint(a3r: Any, project: Path) -> None:
    told = a3r("campaign", "start")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error: ")
    assert "hint: 'a3r campaign start --help'" in told.err
    unknown = a3r("campaing", "list")
    assert unknown.code == 2
    assert "error: " in unknown.err


@pytest.mark.parametrize(
    ("args", "code", "name"),
    [
        (("campaign", "start", "--json"), 2, "usage"),
        (("campaign", "start", "nowhere.md", "--json"), 2, "goal_invalid"),
        (("campaign", "list", "--json"), 2, "workspace_unusable"),
        (("campaign", "show", "--json", "--no-such"), 2, "usage"),
        (("campaign", "verify", "nowhere", "--json"), 2, "not_found"),
        (("campaign", "verify", ".", "--json"), 2, "not_found"),
        (("blueprint", "approve", "--json"), 2, "usage"),
        (("config", "show", "--json"), 2, "workspace_unusable"),
    ],
)
def test_a_failure_with_json_is_one_document(
    a3r: Any, project: Path, args: tuple[str, ...], code: int, name: str
) -> None:
    told = a3r(*args)
    assert told.code == code
    assert told.json["error"]["code"] == name
    assert told.json["error"]["message"]
    assert "error:" not in told.err


MISTAKES = {
    "no metric": (
        "metric: {name: held_out_reward, direction: maximize, items: 10}\n",
        "",
        "metric",
    ),
    "one level": ("levels: [1, 2]", "levels: [1]", "level"),
    "unknown task": ("task: calculator", "task: calculater", "calculator"),
    "unknown key": ("settings:", "setings:", "settings"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_goal_with_a_mistake_exits_2_names_it_and_starts_nothing(
    a3r: Any, goal: Path, mistake: str
) -> None:
    old, new, named = MISTAKES[mistake]
    text = goal.read_text("utf-8")
    assert old in text
    goal.write_text(text.replace(old, new), "utf-8")
    told = a3r("campaign", "start", str(goal))
    assert told.code == 2
    assert told.err.startswith("error: ")
    assert named in told.err
    assert "hint: " in told.err
    assert not (goal.parent / ".a3r").exists()
    checked = a3r("campaign", "check", str(goal), "--json")
    assert (checked.code, checked.json["ok"]) == (2, False)
    assert named in " ".join(checked.json["mistakes"])


def test_check_says_what_is_understood_and_what_it_costs(a3r: Any, goal: Path) -> None:
    told = a3r("campaign", "check", str(goal.parent))
    assert told.code == 0
    assert "train_batch_size among 1, 2" in told.out
    assert "cost: " in told.out
    assert "resolution: " in told.out
    body = a3r("campaign", "check", str(goal), "--json").json
    assert body["ok"] is True
    assert body["estimated_runs"][0] <= body["estimated_runs"][1]


def test_a_wrong_setting_is_bad_input(
    a3r: Any, workspace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A3R_LEASE_S", "many")
    told = a3r("config", "show", "--json")
    assert (told.code, told.json["error"]["code"]) == (2, "workspace_unusable")
    assert "lease_s" in told.json["error"]["message"]


def test_a_defect_is_one_document_and_exit_code_1(a3r: Any, workspace: Any) -> None:
    # A folder in place of a file: something that no command foresees.
    workspace.config.mkdir()
    (workspace.daemon / "ready.json").mkdir(parents=True)
    (workspace.daemon / "lock").mkdir()
    told = a3r("daemon", "stop", "--json")
    assert told.code in (1, 2)
    assert told.json["error"]["message"]


def test_config_show_names_each_value_and_its_source(
    a3r: Any, workspace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A3R_LEASE_S", "30")
    body = a3r("config", "show", "--json").json
    assert body["settings"]["lease_s"] == {
        "value": 30.0,
        "source": "A3R_LEASE_S",
        "variable": "A3R_LEASE_S",
    }
    assert body["settings"]["lost_after_s"]["source"] == "default"
    assert "A3R_LEASE_S" in a3r("config", "show").out


def test_verify_proves_a_report_and_fails_on_one_changed_digit(a3r: Any, project: Path) -> None:
    folder = write_report(
        synthetic_records(two_condition_stages()), project / "reports" / "made up"
    )
    proven = a3r("campaign", "verify", str(folder / "report.md"), "--json")
    assert (proven.code, proven.json["ok"], proven.json["level"]) == (0, True, "self-consistent")
    report = folder / "report.md"
    text = report.read_text("utf-8")
    at = text.index("+0.") + 3
    report.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], "utf-8")
    changed = a3r("campaign", "verify", str(folder), "--json")
    assert (changed.code, changed.json["error"]["code"]) == (5, "verification_failed")
    assert "report.md" in changed.json["error"]["message"]
    told = a3r("campaign", "verify", str(folder))
    assert (told.code, "FAIL" in told.out) == (5, True)
    assert told.err.startswith("error: ")


def test_a_report_whose_records_are_of_the_wrong_shape_fails_in_words_beside_a_workspace(
    a3r: Any, workspace: Workspace
) -> None:
    with Store.open(workspace.database):
        pass
    folder = write_report(
        synthetic_records(two_condition_stages()), workspace.project / "reports" / "torn"
    )
    (folder / "records" / "evals.json").write_text("7\n", "utf-8")
    told = a3r("campaign", "verify", str(folder), "--json")
    assert (told.code, told.json["error"]["code"]) == (5, "verification_failed")


def test_a_report_of_an_unfinished_campaign_stays_true_when_the_campaign_goes_on(
    a3r: Any, workspace: Workspace
) -> None:
    with Store.open(workspace.database) as store:
        goal = synthetic_goal()
        row = store.create_campaign("made up", "# goal", "/g", goal, ReviewMode.NONE, "sweep", 1.0)
        folder = write_report(records_from_store(store, row.id), workspace.project / "so far")
        store.add_stage(row.id, "coarse", {"question": "?"}, [], 2.0)
    told = a3r("campaign", "verify", str(folder), "--json")
    assert (told.code, told.json["level"]) == (0, "self-consistent")
    assert "not finished" in told.err
