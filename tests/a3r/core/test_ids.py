"""Names for new things."""

import re

import pytest

from a3r.core.clock import SystemClock
from a3r.core.ids import MAX_SLUG, base32, new_campaign_id, new_id, new_nonce, new_token, slug


def test_ids_sort_by_the_second_they_were_made_in() -> None:
    times = [0.0, 5.0, 1e9, 1.79e9, 1.79e9 + 1, 3e9]
    ids = [new_id("at", at) for at in times]
    assert ids == sorted(ids)
    assert all(re.fullmatch(r"at-[0-9a-z]{13}", found) for found in ids)


def test_ids_of_one_second_differ() -> None:
    assert len({new_id("run", 1.0) for _ in range(500)}) == 500


def test_ids_are_safe_as_window_names_paths_and_urls() -> None:
    for name in ("Größe: 1..64?", "../etc", "日本"):
        assert re.fullmatch(r"[a-z0-9-]+-[0-9a-z]{8}", new_campaign_id(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Minimum batch size (1..64)", "minimum-batch-size-1-64"),
        ("  Été  ", "ete"),
        ("日本", "campaign"),
        ("", "campaign"),
        ("x" * 99, "x" * MAX_SLUG),
        ("a" * (MAX_SLUG - 1) + " b", "a" * (MAX_SLUG - 1)),
    ],
)
def test_a_slug_keeps_what_ascii_can_say(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_base32_counts_in_its_alphabet() -> None:
    assert [base32(n, 2) for n in (0, 31, 32, 1023, 1024)] == ["00", "0z", "10", "zz", "00"]


def test_nonces_and_tokens_are_long_and_new_each_time() -> None:
    assert len({new_nonce() for _ in range(100)}) == 100
    assert len(new_nonce()) == 32
    assert len(new_token()) >= 43
    assert new_token() != new_token()


def test_the_system_clock_goes_on() -> None:
    clock = SystemClock()
    assert clock.time() > 1.7e9
    assert clock.monotonic() <= clock.monotonic()
