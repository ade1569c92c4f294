"""What a worker that is broken, or hostile, may say: it is refused in words, and breaks no screen."""

from typing import Any

import pytest

from a3r.cli.edge import printable, table

REGISTRATION = {"worker_id": "w7", "host": "h", "pid": 1, "slots": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"worker_id": "w\x1b[31m"},
        {"worker_id": "w\nw2"},
        {"worker_id": ""},
        {"worker_id": "../w"},
        {"worker_id": "w" * 101},
        {"host": "h\x1b]0;title\x07"},
        {"host": "h\nh2"},
        {"host": ""},
        {"slots": -1},
        {"pid": 10**30},
        {"inventory": {"gpus": 7}},
        {"inventory": {"gpus": ["H100"]}},
        {"inventory": {"gpus": {"0": {}}}},
    ],
)
async def test_a_registration_that_would_break_a_screen_is_refused(
    study: Any, changes: dict[str, Any]
) -> None:
    reply = await study.worker("register", {**REGISTRATION, **changes})
    assert reply.status_code == 400
    assert reply.json()["error"]["hint"]
    assert study.store.workers() == []


@pytest.mark.parametrize("path", ["claim", "heartbeat"])
async def test_nobody_claims_or_beats_under_such_a_name(study: Any, path: str) -> None:
    body = {"worker_id": "w\x1b[2J", "free_slots": 1, "attempts": []}
    assert (await study.worker(path, body)).status_code == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"at": 1e308},
        {"at": -1.0},
        {"seq": -1},
        {"kind": "k" * 101},
        {"kind": ""},
        {"actor": "a" * 101},
    ],
)
async def test_an_event_of_no_time_or_no_kind_is_refused(
    study: Any, changes: dict[str, Any]
) -> None:
    spec = await study.claimed()
    event = {"seq": 0, "at": 1000.0, "actor": "worker", "kind": "prepared", "data": {}}
    path = f"attempts/{spec.attempt_id}/events"
    body = {"fencing_token": spec.fencing_token, "events": [{**event, **changes}]}
    assert (await study.worker(path, body)).status_code == 400
    body["events"] = [event]
    assert (await study.worker(path, body)).json() == {"added": 1}


def test_a_cell_of_a_table_is_one_line_whatever_it_holds() -> None:
    (_, line) = table(
        [("w1", "its disk is full\nw2  fine\x1b[2J", None)], ("worker", "trouble", "x")
    )
    assert printable(line) == "w1      its disk is full w2  fine\N{REPLACEMENT CHARACTER}[2J  -"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "hosts/a b"), ("GET", "pools/a b"), ("DELETE", "worker-tokens/-")]
)
async def test_a_name_that_can_be_none_is_refused_with_what_names_are_like(
    study: Any, method: str, path: str
) -> None:
    refused = await study.api(method, path)
    assert refused.status_code == 400
    assert "letters, digits" in refused.json()["error"]["hint"]
