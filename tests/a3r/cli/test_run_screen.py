"""`a3r run show`: one screen, whatever a worker's words hold."""

from typing import Any

from a3r.cli.edge import fields
from a3r.cli.run_screen import run_screen

DETAIL = "auth: Check the key. (The secret 'MY_KEY' is not set.\nhint: Set it in the environment.)"


def a_run() -> dict[str, Any]:
    attempt = {
        "ordinal": 1,
        "state": "blocked",
        "worker_id": "w1",
        "id": "at-1",
        "live": True,
        "failure": None,
        "reason": "",
        "detail": DETAIL,
        "stop_reason": None,
        "step": 0,
        "steps": 0,
        "rounds": [],
        "gain": None,
        "logs": {"server": 10},
        "events": [
            {"kind": "attempt_blocked", "actor": "store", "at": 0.0, "data": {"detail": DETAIL}}
        ],
    }
    return {
        "id": "run-1",
        "label": "s1-b2 seed 1",
        "state": "active",
        "campaign": "c",
        "failure": None,
        "reason": "",
        "factors": {},
        "accepted_attempt": None,
        "stop_at_step": 4,
        "attempts": [attempt],
    }


def test_a_reason_of_several_lines_stays_within_its_place() -> None:
    lines = run_screen(a_run(), None, [])
    assert not any("\n" in line for line in lines)
    doing = next(n for n, line in enumerate(lines) if line.startswith("  doing"))
    at = lines[doing].index("auth")
    assert lines[doing + 1] == " " * at + "hint: Set it in the environment.)"
    (event,) = [line for line in lines if "attempt blocked" in line]
    assert "is not set. hint: Set it" in event


def test_fields_without_a_value_are_left_out() -> None:
    assert fields([("a", "x"), ("long", "y\nz"), ("b", ""), ("c", None)]) == [
        "a     x",
        "long  y",
        "      z",
    ]
