"""The trust figures in small, and that each of them can be missed."""

import json
import random
from pathlib import Path

import pytest

from a3r.leader.sweep import SweepPlanner
from a3r.testing.stand_in.script import Answer
from a3r.testing.trust.__main__ import main
from a3r.testing.trust.budget import budget_figure
from a3r.testing.trust.coverage import MODELS, coverage_figures
from a3r.testing.trust.figure import Figure, table
from a3r.testing.trust.idle import idle_figure
from a3r.testing.trust.invented import DISGUISES, invented_figure
from a3r.testing.trust.judged import referee_figures
from a3r.testing.trust.kills import kills_figure
from a3r.testing.trust.null_variants import effect_at, null_goal, null_truth, won
from a3r.testing.trust.swaps import swaps_figure
from a3r.testing.trust.world import World

GOOD = Figure("good", "1", "1", True)
BAD = Figure("bad", "1", "2", False, "why")
SHOWN = Figure("shown", "(disclosed)", "3", None)


def test_table_marks_what_is_missed_and_keeps_what_is_only_disclosed():
    text = table([GOOD, BAD, SHOWN])
    lines = text.splitlines()
    assert len({len(line) for line in lines[:5]}) == 1
    assert [line.split("|")[-2].strip() for line in lines[2:5]] == ["met", "MISSED", ""]
    assert lines[-1] == "- bad: why"


@pytest.mark.parametrize(
    ("figures", "code"), [([GOOD, SHOWN], 0), ([GOOD, BAD], 1), ([SHOWN], 0), ([], 0)]
)
def test_exit_code_says_whether_a_goal_was_missed(
    figures: list[Figure], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "trust.json"
    assert main(["--json", str(out), "--quiet"], {"one": lambda _scale: figures}) == code
    assert len(json.loads(out.read_text("utf-8"))["figures"]) == len(figures)
    assert f"figures {len(figures)}, missed {code}, not measured 0" in capsys.readouterr().out


def test_a_measurement_that_breaks_is_neither_met_nor_forgotten(
    capsys: pytest.CaptureFixture[str],
):
    def broken(_scale: float) -> list[Figure]:
        raise RuntimeError("no disk")

    assert main(["--quiet"], {"broken": broken, "good": lambda _scale: [GOOD]}) == 2
    out = capsys.readouterr().out
    assert "broken: RuntimeError: no disk" in out
    assert "figures 1, missed 0, not measured 1" in out


def test_models_that_a_t_interval_does_not_fit_are_disclosed_and_not_called_met():
    found = {f.name.split(": ")[-1]: f for f in coverage_figures(0.05)}
    for model in MODELS:
        assert found[model.name].met is (None if model.allowed else True)
    assert "named in" in found["collapse of every second seed"].note


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_the_stated_mean_of_a_model_is_its_mean(model):
    rng = random.Random(1)
    draws = [model.draw(rng) for _ in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(model.truth, abs=0.02)


@pytest.mark.parametrize("kind", ["minimum", "best", "comparison"])
def test_a_real_effect_among_the_variants_is_won_and_no_effect_is_not(kind: str):
    goal = null_goal(kind)
    strong = World(goal, SweepPlanner(), effect_at(20, 0.5), seed=1).play()
    nothing = World(goal, SweepPlanner(), null_truth, seed=1).play()
    assert won(strong)
    assert not won(nothing)


def test_no_invented_percentage_passes_the_guard_of_prose():
    figure = invented_figure()
    assert figure.met, figure
    assert len({disguise(42.3) for disguise in DISGUISES.values()}) == len(DISGUISES)


@pytest.mark.long
def test_no_swapped_comparison_passes_verify():
    figure = swaps_figure(0.1)
    assert figure.met, figure
    assert figure.result == "0 of 20"


def test_a_budget_is_overrun_by_one_call_at_most():
    figure = budget_figure(0.15)
    assert figure.met, figure


def test_the_referee_meets_its_goals_on_a_small_corpus():
    assert [f.met for f in referee_figures(0.1)] == [True, True, True]


@pytest.mark.long
def test_a_led_campaign_asks_its_model_between_stages_only():
    figure = idle_figure()
    assert figure.met, figure
    # a model that plans nothing shows nothing, and the figure says so
    assert not idle_figure(lambda _request: Answer(status=400, error="no")).met


@pytest.mark.long
def test_a_leader_killed_a_few_times_loses_and_doubles_nothing():
    figure = kills_figure(0.1)
    assert figure.met, figure
