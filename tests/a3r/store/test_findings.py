"""Findings are kept across campaigns and found by words; what a person types is never read as an operator."""

import pytest

from a3r.core.types import ReviewMode
from a3r.store.findings import Found
from a3r.store.store import Store


def found(campaign: str, number: int, text: str, subject: str = "") -> Found:
    return Found(f"{campaign}/c{number}", text, subject, "minimum train_batch_size", {"n": number})


@pytest.fixture
def filed(store: Store) -> Store:
    for name in ("a", "b"):
        store.create_campaign(name, "", "", {}, ReviewMode.NONE, "sweep", 1.0)
    store.file_findings(
        "a",
        [
            found("a", 1, "The smallest train_batch_size shown to train is 16."),
            found("a", 2, "LoRA rank 8 is not shown to differ from 4.", "lora rank"),
        ],
        10.0,
    )
    store.file_findings("b", [found("b", 1, "Rank 2 falls behind.")], 20.0)
    return store


def test_the_best_match_comes_first_and_words_match_by_their_beginning(filed: Store):
    assert [f.id for f in filed.search_findings("lora rank")] == ["a/c2", "b/c1"]
    assert [f.id for f in filed.search_findings("LOR")] == ["a/c2"]
    assert filed.search_findings("nothing like it") == []
    assert filed.search_findings("lora", limit=0) == []


def test_a_campaign_can_leave_out_its_own(filed: Store):
    assert [f.id for f in filed.search_findings("rank", without="a")] == ["b/c1"]


@pytest.mark.parametrize("words", ["", "  ", '"', "***", "()", "-- ;"])
def test_no_words_find_nothing(filed: Store, words: str):
    assert filed.search_findings(words) == []


@pytest.mark.parametrize(
    "words", ['rank"; DROP', "rank OR", "NEAR(rank)", "text:rank", "rank -lora", "ränk rank\x00"]
)
def test_operators_are_words(filed: Store, words: str):
    assert "a/c2" in [f.id for f in filed.search_findings(words)]


def test_filing_again_replaces_and_keeps_the_data(filed: Store):
    filed.file_findings("a", [found("a", 3, "Another.")], 30.0)
    assert [f.id for f in filed.findings()] == ["a/c3", "b/c1"]
    assert [f.data for f in filed.findings("a")] == [{"n": 3}]
    assert filed.findings("nobody") == []
