"""The referee on a small part of its corpus; ``make trust`` scores the whole of it."""

import random

import pytest

from a3r.report.referee import Grade, referee
from a3r.report.referee.rules import RULES
from a3r.testing.faults.clean import CLEAN
from a3r.testing.faults.score import Tally, corpus, corpus_score, doubted
from a3r.testing.faults.seeded import FAULTS


def test_every_rule_that_can_doubt_a_run_has_a_seeded_fault():
    doubting = {r.name for r in RULES} - {"reward_plateau"}  # which only makes notes
    assert {f.rule for f in FAULTS.values()} == doubting


@pytest.mark.parametrize("kind", FAULTS)
def test_gross_fault_is_found_by_its_rule(kind: str):
    fault = FAULTS[kind]
    rng = random.Random(f"gross/{kind}")
    verdicts = referee(fault.make(f"gross-{kind}", rng, 0.98).records())
    assert fault.rule in doubted(list(verdicts.values()))


@pytest.mark.parametrize("kind", CLEAN)
def test_clean_run_is_valid_also_when_it_looks_faulty(kind: str):
    rng = random.Random(f"clean-test/{kind}")
    (verdict,) = referee(CLEAN[kind](f"clean-{kind}", rng).records()).values()
    assert verdict.grade is Grade.VALID
    assert verdict.reason == ""


def test_corpus_is_the_same_each_time():
    first, second = (list(corpus(1, 7)) for _ in range(2))
    assert first == second


def test_score_of_a_part_counts_every_case_once_and_excludes_no_clean_run():
    score = corpus_score(2, 5000)
    assert (score.faulty, score.clean) == (2 * len(FAULTS), 2 * len(CLEAN))
    assert sum(t.right + t.missed for t in score.rules) == score.faulty
    assert score.clean_invalid == 0
    assert score.precision > 0.9


def test_rule_that_never_spoke_has_no_precision():
    assert Tally("quiet").precision is None
    assert Tally("quiet", missed=2).recall == 0.0
