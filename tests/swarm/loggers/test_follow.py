"""Steps are handed to a logger once each, over restarts of the logger and of the server."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.client import SwarmClient
from swarm.loggers.errors import LoggerFailed
from swarm.loggers.follow import Plan, flat_config, follow
from swarm.loggers.leveldb import BLOCK, FIRST, HEADER, LAST, MIDDLE, WHOLE, records
from swarm.loggers.scalars import NAME_LIMIT, NUMBERS, TABLES, safe_name, scalars
from swarm.loggers.sink import LoggerName, RunOptions
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ServerUnreachable
from swarm.protocol.records import StepMetrics
from swarm.testing.live_server import LiveServer, live_server

NAME = LoggerName.TENSORBOARD
Written = list[tuple[str, int, float]]


@dataclass
class Book:
    """A logger that keeps what it is given, and ``refuses`` a step as any may."""

    written: Written = field(default_factory=list)
    opened: list[RunOptions] = field(default_factory=list)
    closed: int = 0
    refuses: int = -1
    on_write: Callable[[int], None] = lambda _step: None

    def open(self, _name: LoggerName, options: RunOptions) -> BookSink:
        self.opened.append(options)
        return BookSink(self, options.run_id)

    def steps(self, run: int = 0) -> list[int]:
        return [step for run_id, step, _ in self.written if run_id == self.opened[run].run_id]


class BookSink:
    def __init__(self, book: Book, run_id: str) -> None:
        self._book, self._run_id = book, run_id

    def last_step(self) -> int:
        mine = [step for run_id, step, _ in self._book.written if run_id == self._run_id]
        return max(mine, default=0)

    def write(self, step: int, scalars: dict[str, float], at: float) -> None:
        if step == self._book.refuses:
            raise OSError("disk full")
        assert at > 0
        self._book.written.append((self._run_id, step, scalars["swarm/reward_mean"]))
        self._book.on_write(step)

    def close(self) -> None:
        self._book.closed += 1


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / "state") as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Generator[SwarmClient]:
    with SwarmClient(server.url, server.tokens.admin) as one:
        yield one


def config(**values: Any) -> dict[str, Any]:
    batch = {"tasks": 1, "repeat": 2, "drain_deadline_s": 0.2}
    return {"engine": "toy", "stop_at_step": 3, "batch": batch, "run_name": "my run"} | values


def play(client: SwarmClient, steps: int) -> None:
    for _ in range(steps):
        step = client.status().step
        for reward in (0.0, 1.0):
            with client.episode(f"t{step}") as episode:
                episode.chat([{"role": "user", "content": "hi"}])
                episode.finish(reward)
        client.wait_step(step, 20)


def plan(tmp_path: Path, *, once: bool = False) -> Plan:
    return Plan(NAME, "p", tmp_path / "log", once=once, hold_s=0.5)


def test_all_steps_of_a_finished_run_are_written_in_order(
    client: SwarmClient, tmp_path: Path
) -> None:
    client.configure(config())
    client.start()
    play(client, 3)
    book = Book()
    done = follow(client, plan(tmp_path), opener=book.open)
    assert [(step, mean) for _, step, mean in book.written] == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert (done.written, done.last_step, book.closed) == (3, 3, 1)
    assert done.run_id.startswith("my_run-")
    assert book.opened[0].config["batch.tasks"] == 1


def test_a_second_start_goes_on_after_the_last_step_that_the_logger_holds(
    client: SwarmClient, tmp_path: Path
) -> None:
    client.configure(config())
    client.start()
    book = Book()
    for steps in (1, 0, 2):
        play(client, steps)
        follow(client, plan(tmp_path, once=True), opener=book.open)
    assert book.steps() == [1, 2, 3]
    assert len({options.run_id for options in book.opened}) == 1
    book.written = book.written[:1]  # the logger lost what it had not stored when it was killed
    follow(client, plan(tmp_path, once=True), opener=book.open)
    assert book.steps() == [1, 2, 3]


def test_new_steps_are_written_as_they_come_until_training_is_complete(
    client: SwarmClient, tmp_path: Path
) -> None:
    client.configure(config())
    client.start()
    play(client, 1)

    def one_more(step: int) -> None:
        if step < 3:
            play(client, 1)

    book = Book(on_write=one_more)
    follow(client, plan(tmp_path), opener=book.open)
    assert book.steps() == [1, 2, 3]


def test_a_new_run_of_the_server_is_a_new_run_of_the_logger(
    client: SwarmClient, tmp_path: Path
) -> None:
    client.configure(config(stop_at_step=5))
    client.start()
    play(client, 2)

    def begin_another(step: int) -> None:
        if step == 2 and len(book.opened) == 1:
            client.stop()
            client.configure(config(stop_at_step=3, seed=7))
            client.start()
            play(client, 3)

    book = Book(on_write=begin_another)
    done = follow(client, plan(tmp_path), opener=book.open)
    assert (book.steps(0), book.steps(1)) == ([1, 2], [1, 2, 3])
    assert (done.written, done.run_id) == (5, book.opened[1].run_id)
    assert book.closed == 2


def test_a_server_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    state, stack = tmp_path / "state", ExitStack()
    server = stack.enter_context(live_server(state))
    port = int(server.url.rpartition(":")[2])
    away: list[float] = []
    with SwarmClient(server.url, server.tokens.admin, timeout_s=0.3) as client, stack:
        client.configure(config(checkpoint={"every_steps": 1}))
        client.start()
        play(client, 1)

        def cut(step: int) -> None:
            if step == 1:
                stack.close()

        def come_back(seconds: float) -> None:
            away.append(seconds)
            if len(away) == 1:
                stack.enter_context(live_server(state, resume=True, port=port))
                play(client, 2)

        book = Book(on_write=cut)
        follow(client, plan(tmp_path), opener=book.open, pause=come_back)
    assert book.steps() == [1, 2, 3]
    assert len(book.opened) == 1
    assert away


def test_a_server_without_a_run_is_waited_for_unless_once(
    client: SwarmClient, tmp_path: Path
) -> None:
    book = Book()
    assert follow(client, plan(tmp_path, once=True), opener=book.open).run_id == ""

    def begin(_seconds: float) -> None:
        client.configure(config())
        client.start()
        play(client, 3)

    follow(client, plan(tmp_path), opener=book.open, pause=begin)
    assert book.steps() == [1, 2, 3]


def test_a_server_that_never_answered_is_an_error(closed_url: str, tmp_path: Path) -> None:
    with (
        SwarmClient(closed_url, "t", timeout_s=0.2) as client,
        pytest.raises(ServerUnreachable),
    ):
        follow(client, plan(tmp_path), opener=Book().open)


def test_a_logger_that_refuses_is_named_and_loses_nothing(
    client: SwarmClient, tmp_path: Path
) -> None:
    client.configure(config())
    client.start()
    play(client, 3)
    book = Book(refuses=2)
    with pytest.raises(
        LoggerFailed, match=r"tensorboard could not write step 2: OSError: disk full"
    ):
        follow(client, plan(tmp_path), opener=book.open)
    assert book.closed == 1
    book.refuses = -1
    follow(client, plan(tmp_path), opener=book.open)
    assert book.steps() == [1, 2, 3]


# -- names and files --------------------------------------------------------------------------------------------


def some_metrics(**values: Any) -> StepMetrics:
    """A record with nothing in it but ``values``."""
    empty: dict[str, Any] = {}
    for name, wanted in StepMetrics.model_fields.items():
        if wanted.is_required():
            kind = str(wanted.annotation)
            empty[name] = None if "None" in kind else {} if "dict" in kind else 0
    return StepMetrics(**empty | {"fingerprint": "", "updated": True} | values)


def test_missing_numbers_are_left_out_and_zero_is_kept() -> None:
    found = scalars(some_metrics(step=4, loss=0.0, kl=None, reward_mean=math.inf))
    assert found["swarm/step"] == 4.0
    assert found["swarm/loss"] == 0.0
    assert "swarm/kl" not in found
    assert "swarm/reward_mean" not in found


def test_tables_and_facts_become_numbers() -> None:
    found = scalars(
        some_metrics(
            tokens={"trained": 5, "masked:zero_advantage": 2},
            episodes_dropped={"leftover": 1},
            task_sets={"math": 3},
            agents={"seer": 0.5},
            clients={"a": 1, "b": 2},
            rolled_back="nan",
            eval_round="missed",
        )
    )
    wanted = {
        "swarm/tokens/trained": 5.0,
        "swarm/tokens/masked.zero_advantage": 2.0,
        "swarm/dropped/leftover": 1.0,
        "swarm/task_sets/math": 3.0,
        "swarm/reward_of/seer": 0.5,
        "swarm/contributing_clients": 2.0,
        "swarm/rolled_back": 1.0,
        "swarm/eval_round_missed": 1.0,
        "swarm/updated": 1.0,
    }
    assert wanted.items() <= found.items()


def test_every_number_is_a_field_of_the_record_and_every_name_is_in_the_guide() -> None:
    assert {*NUMBERS, *TABLES} <= set(StepMetrics.model_fields)
    guide = (Path(__file__).parents[3] / "docs/guides/monitoring.md").read_text("utf-8")
    listed = set(re.findall(r"`swarm/([a-z_]+)", guide))
    always = {name.split("/")[1] for name in scalars(some_metrics())}
    assert {*NUMBERS, *TABLES.values(), *always} == listed


@given(st.text())
def test_any_name_is_made_safe_and_different_ones_stay_different(name: str) -> None:
    made = safe_name(name)
    assert len(made) <= NAME_LIMIT + 9
    assert all(c.isascii() and (c.isalnum() or c in "_.-") for c in made)
    assert safe_name(name + "\u202e") != made


def test_a_leveldb_log_is_read_up_to_where_a_crash_cut_it(tmp_path: Path) -> None:
    """Records of all lengths around the block's edge, written by hand as the format says; cut anywhere."""
    wanted = [bytes([i % 251]) * length for i, length in enumerate((0, 1, 32_740, 5, 70_000, 3))]
    raw = bytearray(b"header!")
    for data in wanted:
        left, first = data, True
        while True:
            room = BLOCK - len(raw) % BLOCK
            if room < HEADER:
                raw += bytes(room)
                continue
            piece, left = left[: room - HEADER], left[room - HEADER :]
            kind = (WHOLE if not left else FIRST) if first else (MIDDLE if left else LAST)
            raw += b"crc!" + len(piece).to_bytes(2, "little") + bytes([kind]) + piece
            first = False
            if not left:
                break
    path = tmp_path / "log"
    path.write_bytes(raw)
    assert list(records(path)) == wanted
    for cut in (0, 3, 7, 20, 32_768, 40_000, len(raw) - 1):
        path.write_bytes(raw[:cut])
        assert list(records(path)) == wanted[: len(list(records(path)))]
    assert len(list(records(path))) == len(wanted) - 1


def test_the_flat_configuration_has_only_plain_values() -> None:
    flat = flat_config(TrainConfig(run_name="x"))
    assert flat["run_name"] == "x"
    assert flat["batch.policy"] == "C2"
    assert flat["model.max_model_len"] == "None"
    assert all(isinstance(value, str | int | float | bool) for value in flat.values())
