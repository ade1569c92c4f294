"""Records as files: exact round trip, small, and strict about what they read."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from a3r.core.errors import VerificationFailed
from a3r.report.files import decode, encode
from a3r.report.records import EventRecord, Records
from a3r.testing.edits import with_item, with_run
from a3r.testing.records import (
    synthetic_goal,
    synthetic_records,
    two_condition_stages,
)


def round_trip(records: Records) -> Records:
    contents = encode(records)
    return decode(lambda name: contents[name])


def test_records_come_back_exactly(records: Records):
    assert round_trip(records) == records


def test_odd_values_come_back_exactly(records: Records):
    odd = with_item(records, 0, 0, reward=None, policy_version=None, reason='a "b",\r\nc\x00|é')
    odd = with_item(odd, 0, 1, reward=0.1 + 0.2, policy_version=7)
    odd = with_run(odd, 0, reason="línea\u2028 two\n\ttabs")
    event = EventRecord(seq=2, at=0.1, actor="x", kind="y", subject="", data={"k": [1, None, "ü"]})
    odd = odd.model_copy(update={"events": (*odd.events, event)})
    assert round_trip(odd) == odd


def test_a_large_campaign_stays_below_a_megabyte(tmp_path: Path):
    large = synthetic_records(two_condition_stages(), synthetic_goal(items=300), steps=40)
    assert (len(large.runs), len(large.evals)) == (32, 64)
    assert sum(len(data) for data in encode(large).values()) < 900_000


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("items.csv", lambda t: t.replace("0,0,1,=", "0,0,nan,="), "line 2"),
        ("items.csv", lambda t: t.replace("0,0,1,=,3", "0,9999,1,=,3"), "line 2"),
        ("items.csv", lambda t: t.replace("round,", "rounds,", 1), "line 1"),
        ("runs.json", lambda t: t.replace('"seed": 1', '"seed": NaN', 1), "NaN"),
        ("runs.json", lambda t: t.replace('"seed"', '"sead"', 1), "seed: Field required"),
        ("steps.jsonl", lambda t: t.replace("run_id", "rum_id", 1), "line 1"),
        ("campaign.json", lambda t: t[:-5], "campaign.json"),
    ],
)
def test_broken_file_is_named_with_its_place(
    records: Records, name: str, change: Callable[[str], str], message: str
):
    contents = encode(records)
    before = contents[f"records/{name}"].decode()
    contents[f"records/{name}"] = change(before).encode()
    assert contents[f"records/{name}"].decode() != before
    with pytest.raises(VerificationFailed, match=message):
        decode(lambda n: contents[n])


def test_random_bytes_never_escape_as_another_error(records: Records):
    rng, contents = random.Random(3), encode(records)
    messages: list[str] = []
    for name in contents:
        spoiled = bytearray(contents[name])
        for _ in range(3):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        try:
            decode(lambda n, name=name, data=bytes(spoiled): data if n == name else contents[n])
        except VerificationFailed as error:
            messages.append(error.message)
    assert messages
    assert all(message.startswith("records/") for message in messages)
