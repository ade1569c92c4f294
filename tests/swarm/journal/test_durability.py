"""Crashes, locks, damage and other versions: acknowledged records stay, and nothing is lost in silence."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, JournalFailed
from swarm.protocol.states import EpisodeState
from swarm.server.journal.failures import journal_failure
from swarm.server.journal.journal import Journal
from swarm.server.journal.schema import VERSION

WRITER = """
import sys
from swarm.protocol.config import TrainConfig
from swarm.protocol.records import CallRecord
from swarm.protocol.states import EpisodeKind
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import EpisodeRecord

journal = Journal.open(sys.argv[1])
journal.set_config(TrainConfig(), "inc")
call = CallRecord(index=0, policy_version=0, messages=[], reply={}, finish_reason="stop", prompt_ids=[1] * 200,
                  sampled_ids=[2] * 50, logprobs=[-1.0] * 50, temperature=1.0, max_tokens=50)
n = 0
while True:
    journal.record_grant(EpisodeRecord(episode_id=f"e{n}", kind=EpisodeKind.TRAIN, client_id="c", task_set="s",
                                       task_id="t", step=0, policy_version=0, granted_at=1.0))
    print("granted", n, flush=True)
    journal.record_finish(f"e{n}", reward=n / 3, metrics={}, calls=[call] * 3, ended_at=2.0)
    print("finished", n, flush=True)
    n += 1
"""

FULL_DISK = """
import resource, signal, sys
from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import JournalFailed
from swarm.server.journal.journal import Journal

journal = Journal.open(sys.argv[1])
journal.set_config(TrainConfig(), "inc")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
n = 0
try:
    while True:
        journal.event("big", {"text": "x" * 1000})
        n += 1
except JournalFailed as err:
    assert err.hint
    print(n)
"""


def _child(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("lines", [1, 20, 201])
def test_what_was_acknowledged_before_a_kill_is_there_afterwards(path: Path, lines: int) -> None:
    with _child(WRITER, path) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().split() for _ in range(lines)]
        child.kill()
        acknowledged += [line.split() for line in child.stdout if line.endswith("\n")]
    journal = Journal.open(path)
    for what, n in acknowledged:
        episode = journal.episode(f"e{n}")
        if what == "finished":
            assert episode.state is EpisodeState.FINISHED
            assert (episode.reward, len(episode.calls)) == (int(n) / 3, 3)
    state = journal.load_state()
    assert state is not None
    assert len(state.pool) >= sum(what == "finished" for what, _ in acknowledged)
    journal.close()


def test_a_disk_that_cannot_take_more_is_reported_and_keeps_what_was_acknowledged(
    path: Path,
) -> None:
    with _child(FULL_DISK, path) as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    journal = Journal.open(path)
    assert len(journal.events_after(0)) == int(out) > 10
    journal.close()


def test_a_second_server_on_the_same_folder_is_refused(path: Path, journal: Journal) -> None:
    with pytest.raises(JournalFailed, match="locked") as caught:
        Journal.open(path, busy_timeout_s=0.05)
    assert "another server" in caught.value.hint
    assert journal.event("still mine").seq == 1


def _edit(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()


def test_a_journal_of_a_newer_version_is_refused_and_not_touched(
    path: Path, journal: Journal
) -> None:
    journal.close()
    _edit(path, f"UPDATE schema_version SET version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=f"schema version {VERSION + 1}") as caught:
        Journal.open(path)
    assert "newer program" in caught.value.hint
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    path.parent.mkdir()
    _edit(path, "CREATE TABLE notes (text TEXT)")
    with pytest.raises(ConfigError, match="something else"):
        Journal.open(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 200)
    with pytest.raises(JournalFailed, match="not a journal"):
        Journal.open(path)


def test_a_torn_file_is_refused(path: Path, journal: Journal, build: Any) -> None:
    for n in range(50):
        journal.record_grant(build.episode(f"e{n}"))
        journal.record_finish(
            f"e{n}", reward=1.0, metrics={}, calls=[build.call()] * 9, ended_at=1.0
        )
    journal.close()
    body = path.read_bytes()
    path.write_bytes(body[: len(body) // 2])
    with pytest.raises(JournalFailed, match="damaged") as caught:
        Journal.open(path)
    assert "copy" in caught.value.hint


def test_a_record_whose_bytes_make_no_sense_is_reported_not_skipped(
    path: Path, journal: Journal, build: Any
) -> None:
    journal.record_grant(build.episode("a"))
    journal.record_finish("a", reward=1.0, metrics={}, calls=[build.call()], ended_at=1.0)
    journal.close()
    _edit(path, "UPDATE calls SET body = x'c1'")
    reopened = Journal.open(path)
    with pytest.raises(JournalFailed, match="episode 'a' cannot be decoded"):
        reopened.load_state()
    reopened.close()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalFailed, match="cannot be created"):
        Journal.open(tmp_path / "file" / "journal.sqlite")


def test_read_only_and_full_databases_say_what_to_do(path: Path, journal: Journal) -> None:
    journal.close()
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as read_only,
        pytest.raises(sqlite3.Error) as caught,
    ):
        read_only.execute("DELETE FROM events")
    failure = journal_failure(caught.value, path)
    assert "is read-only" in failure.message
    assert "write permission" in failure.hint
    with closing(sqlite3.connect(path)) as full:
        full.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.Error) as caught:
            full.execute("INSERT INTO events (at, kind, data) VALUES (1, 'k', zeroblob(9000000))")
    assert "disk is full" in journal_failure(caught.value, path).message


def test_a_closed_journal_says_so_and_closing_twice_is_safe(path: Path, journal: Journal) -> None:
    journal.close()
    journal.close()
    with pytest.raises(JournalFailed):
        journal.event("late")
    again = Journal.open(path)
    assert again.config() == TrainConfig(run_name="first", seed=4)
    again.close()
