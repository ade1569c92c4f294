"""The small parts: progress lines, log pages, the tick, the local worker."""

import base64
import fcntl
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from a3r.cli.daemon.local_worker import FIRST_BACKOFF_S, LocalWorker, worker_pid
from a3r.cli.daemon.ticking import IDLE_TICK_S, Ticker
from a3r.cli.edge import fields, json_line, printable, say, table
from a3r.cli.progress import event_text, overview
from a3r.cli.run import log_lines, pump
from a3r.cli.run_screen import failing_log
from a3r.core.workspace import Workspace


@dataclass
class HandClock:
    now: float = 100.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def _event(kind: str, data: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "data": data or {},
        "more": more,
        "subject": "s1-b2",
        "actor": "ada",
        "at": 0.0,
    }


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (_event("attempt_leased", label="b16 seed 3", ordinal=1), "run started: b16 seed 3"),
        (
            _event("attempt_leased", label="b16 seed 3", ordinal=2),
            "run started: b16 seed 3 (attempt 2)",
        ),
        (
            _event("attempt_succeeded", label="b16 seed 3", gain=0.1234),
            "run finished: b16 seed 3, gain +0.123",
        ),
        (
            _event("attempt_succeeded", label="b16 seed 3", gain=None),
            "run finished: b16 seed 3, gain not known",
        ),
        (
            _event("attempt_failed", {"failure": "stall", "reason": "no step"}, label="b16 seed 3"),
            "attempt failed: b16 seed 3 (stall): no step",
        ),
        (_event("decided", {"what": "refine", "why": "8 trains"}), "decided: refine: 8 trains"),
        (
            _event("deviation", {"what": "client restarted", "why": "crash"}, label="b16 seed 3"),
            "deviation in b16 seed 3: client restarted: crash",
        ),
        (_event("campaign_blocked", {"failure": "disk full"}), "campaign blocked: disk full"),
        (_event("blueprint_approved"), "blueprint s1-b2: approved (ada)"),
        (_event("attempt_preparing", label="x"), None),
        (_event("something_new"), None),
    ],
)
def test_events_are_told_in_words_or_not_at_all(event: Any, words: str | None) -> None:
    assert event_text(event) == words


def test_the_overview_counts_what_is_over_and_names_what_runs() -> None:
    counts = {"succeeded": 3, "failed": 1, "active": 1, "pending": 1}
    campaign: dict[str, Any] = {"stage": 2, "runs": counts, "blocked_attempts": []}
    run = {"state": "active", "label": "b8 seed 1", "step": 12, "stop_at_step": 40}
    assert overview(campaign, [run]) == "stage 2, 4 of 6 runs over; b8 seed 1 step 12/40"
    campaign["blocked_attempts"] = [{"label": "b8 seed 1", "run": "r", "why": "no credit"}]
    assert overview(campaign, []) == "stage 2, 4 of 6 runs over, 1 blocked: a person is needed"
    assert overview({"stage": 1, "runs": {}}, []) == "stage 1, 0 of 0 runs over"


def test_logs_cannot_steer_the_terminal() -> None:
    assert (
        printable("a\x1b[31mb\x07\tc\n")
        == "a\N{REPLACEMENT CHARACTER}[31mb\N{REPLACEMENT CHARACTER}\tc\n"
    )
    assert log_lines(b"one\r\xff\x1b]0;x\n\n") == ["one", "\ufffd\ufffd]0;x"]


class _PagedHub:
    """A hub that hands out a log three bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def get(self, _path: str, *, offset: int, **_query: Any) -> dict[str, Any]:
        part = self.data[offset : offset + 3]
        return {
            "name": "client",
            "attempt": 1,
            "size": len(self.data),
            "next_offset": offset + len(part),
            "ended": offset + len(part) >= len(self.data),
            "data_b64": base64.b64encode(part).decode(),
        }


@pytest.mark.parametrize("follow", [False, True])
def test_a_character_across_two_pages_stays_whole(
    capsys: pytest.CaptureFixture[str], follow: bool
) -> None:
    text = "zwölf Töne\r\nmore ☕ and \x1b end"
    hub: Any = _PagedHub(text.encode())
    first = hub.get("", offset=0)
    first["data"] = base64.b64decode(first.pop("data_b64"))
    pump(hub, "run-1", first, None, follow=follow)
    assert capsys.readouterr().out == "zwölf Töne\nmore ☕ and \N{REPLACEMENT CHARACTER} end"


def test_the_failing_process_is_the_one_that_the_reason_names() -> None:
    logs = {"client": 5, "server": 9, "evaluator": 0}
    attempt = {"state": "failed", "failure": "server_crash", "reason": "exit 1", "logs": logs}
    assert failing_log({"attempts": [attempt]}) == "server"
    assert failing_log({"attempts": [{**attempt, "failure": None}]}) == "client"
    assert failing_log({"attempts": [{**attempt, "state": "running"}]}) is None
    assert failing_log({"attempts": []}) is None


def test_tables_and_fields_align_and_leave_out_what_is_unknown() -> None:
    assert table([("a", None), ("bbb", 2)], ("x", "y")) == ["x    y", "a    -", "bbb  2"]
    assert fields([("one", 1), ("none", None), ("longer", 0)]) == ["one     1", "longer  0"]
    assert fields([]) == []


def test_a_tick_works_when_something_was_written_or_time_has_passed() -> None:
    clock, writes, calls = HandClock(), [0], [0]

    def work() -> bool:
        calls[0] += 1
        return calls[0] == 1

    ticker = Ticker(work, lambda: writes[0], clock)
    ticker.tick()
    ticker.tick()  # the first one said that there is more to do
    assert calls == [2]
    ticker.tick()
    assert calls == [2]
    writes[0] += 1
    ticker.tick()
    assert calls == [3]
    clock.now += IDLE_TICK_S
    ticker.tick()
    assert calls == [4]


def test_a_failing_tick_is_told_once_tried_ever_more_slowly_and_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls, broken = HandClock(), [0], [True]

    def work() -> bool:
        calls[0] += 1
        if broken[0]:
            raise ValueError("no such level")
        return False

    ticker = Ticker(work, lambda: calls[0], clock)
    for _ in range(100):
        ticker.tick()
        clock.now += 0.5
    assert 5 <= calls[0] <= 12
    report = ticker.report()
    assert report["last_error"] == "ValueError: no such level"
    assert report["failures_in_a_row"] == calls[0]
    assert len([r for r in caplog.records if r.exc_info]) == 1
    broken[0] = False
    clock.now += 60
    ticker.tick()
    assert (ticker.report()["last_error"], ticker.report()["ticks"]) == (None, 1)


def test_the_local_worker_is_started_when_none_lives_and_not_in_a_hurry(tmp_path: Path) -> None:
    workspace, clock = Workspace.create(tmp_path / ".a3r"), HandClock()
    started: list[Sequence[str]] = []

    def spawn(argv: Sequence[str], _log: Path) -> None:
        started.append(argv)

    keeper = LocalWorker(workspace, clock, spawn)
    assert [keeper.tend(), keeper.tend()] == [True, False]
    clock.now += FIRST_BACKOFF_S
    assert [keeper.tend(), keeper.tend()] == [True, False]
    clock.now += FIRST_BACKOFF_S
    assert keeper.tend() is False  # the second pause is longer
    assert len(started) == 2
    assert "token" not in " ".join(started[0])
    workspace.worker.mkdir()
    with (workspace.worker / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clock.now += 1000
        assert keeper.tend() is False
        assert worker_pid(workspace) == 0
    assert worker_pid(workspace) is None
    assert keeper.tend() is True


def test_remarks_cannot_steer_the_terminal_either(capsys: pytest.CaptureFixture[str]) -> None:
    say("campaign \x1b[2Jx started")
    assert capsys.readouterr().err == "campaign \N{REPLACEMENT CHARACTER}[2Jx started\n"


def test_a_database_that_cannot_be_asked_for_writes_is_a_failed_tick_like_any_other() -> None:
    def writes() -> int:
        raise OSError("disk")

    ticker = Ticker(lambda: False, writes, HandClock())
    ticker.tick()
    assert ticker.report()["last_error"] == "OSError: disk"
    ticker.tick()
    assert ticker.report()["failures_in_a_row"] == 1  # it waits before it asks again


def test_json_of_odd_characters_is_lossless_and_steers_no_terminal() -> None:
    document = {"é 🎲": "a\x9b31m\x1b[2J\u202e\x7f\ud800\u2028\U000e0041\n"}
    line = json_line(document)
    assert line.isprintable()
    assert "é 🎲" in line
    assert json.loads(line) == document
    assert line.encode()
