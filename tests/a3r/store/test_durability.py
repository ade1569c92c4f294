"""Many writers, a killed process, an older file, a newer file, trouble with the disk."""

import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from a3r.core.errors import StoreError
from a3r.core.types import AttemptState, ReviewMode, RunState
from a3r.store.failures import translated
from a3r.store.schema import VERSION
from a3r.store.store import Store

OLDEST = (Path(__file__).parent / "oldest.sql").read_text("utf-8")


def test_four_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    stores = [Store.open(tmp_path / "a3r.db") for _ in range(2)]
    campaign = stores[0].create_campaign("c", "", "", {}, ReviewMode.STAGE, "sweep", 1.0)
    failures: list[BaseException] = []

    def write(name: str, store: Store) -> None:
        try:
            for n in range(100):
                store.add_event(campaign.id, name, "count", str(n), {}, 1.0)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=write, args=(f"t{n}", stores[n % 2])) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [e for e in stores[0].events(campaign.id, limit=1000) if e.kind == "count"]
    assert failures == []
    for name in ("t0", "t1", "t2", "t3"):
        assert [e.subject for e in found if e.actor == name] == [str(n) for n in range(100)]
    for store in stores:
        store.close()


def test_what_was_committed_survives_a_killed_process(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from a3r.core.types import ReviewMode
        from a3r.store.store import Store

        store = Store.open(Path(sys.argv[1]))
        campaign = store.create_campaign("c", "", "", {}, ReviewMode.STAGE, "sweep", 1.0).id
        print(campaign, flush=True)
        for n in range(10**6):
            print(store.add_event(campaign, "w", "count", str(n), {}, 1.0).seq, flush=True)
    """)
    path = tmp_path / "a3r.db"
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        campaign = child.stdout.readline().strip()
        for _ in range(50):
            child.stdout.readline()
        child.kill()
        told = [int(line) for line in child.stdout.read().splitlines(keepends=True) if "\n" in line]
    assert child.returncode == -signal.SIGKILL
    with Store.open(path) as store:
        counted = [e for e in store.events(campaign, limit=10**6) if e.kind == "count"]
        assert [e.subject for e in counted] == [str(n) for n in range(len(counted))]
        assert len(counted) >= 50
        assert counted[-1].seq >= max(told, default=0)
        store.add_event(campaign, "w", "after", "", {}, 2.0)


def test_the_disk_has_a_claim_before_it_is_answered_but_no_heartbeat_waits_for_it(
    study: Any, store: Store
) -> None:
    # Whatever the process opens is told by its audit hooks, which stay for ever: so in a process of its own.
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from a3r.core.types import AttemptState
        from a3r.store.store import Store

        store, opened = Store.open(Path(sys.argv[1])), []
        sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)

        def synced():
            count = sum(path.endswith("-wal") for path in opened)
            opened.clear()
            return count

        claimed = store.claim_attempt("w1", 5.0, 10.0)
        after_claim = synced()
        token, running = claimed.fencing_token, AttemptState.RUNNING
        store.renew(claimed.id, token, running, 1, "", 6.0, 10.0)
        after_beat = synced()
        store.finish_attempt(claimed.id, token, "failed", None, "x", {}, 7.0)
        print(after_claim, after_beat, synced())
    """)
    store.queue_attempt(study.runs()[0].id, 1.0)
    argv = [sys.executable, "-c", script, str(store.folder / "a3r.db")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1", "0", "1"]


def test_the_oldest_schema_is_brought_up_to_date_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a3r.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript(OLDEST)
    for _ in range(2):
        with Store.open(path) as store:
            (campaign,) = store.campaigns()
            (run,) = store.runs(campaign.id)
            attempt = store.attempt(run.accepted_attempt or "")
            assert (run.state, attempt.state) == (RunState.SUCCEEDED, AttemptState.SUCCEEDED)
            assert [s["step"] for s in store.steps(attempt.id)] == [1, 2, 3]
            assert [r.name for r in store.eval_rounds(attempt.id)] == ["initial", "final"]
            assert store.approved(run.blueprint_id)
            store.add_deviation(campaign.id, "new table", {}, 5.0)
    assert _pragma(path, "user_version") == VERSION
    assert _pragma(path, "foreign_key_check") is None


def test_an_upgraded_file_has_the_schema_of_a_blank_one(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.executescript(OLDEST)
    schemas: list[Any] = []
    for name in ("old.db", "new.db"):
        Store.open(tmp_path / name).close()
        with closing(sqlite3.connect(tmp_path / name)) as file:
            query = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1"
            schemas.append(file.execute(query).fetchall())
    assert schemas[0] == schemas[1]


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a3r.db"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(StoreError, match=f"schema version {VERSION + 1}") as caught:
        Store.open(path)
    assert "newer a3r" in caught.value.hint
    assert _pragma(path, "user_version") == VERSION + 1


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a3r.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not an a3r database"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_and_a_folder_are_named(tmp_path: Path) -> None:
    text = tmp_path / "a3r.db"
    text.write_text("hello, this is not a database at all " * 40)
    with pytest.raises(StoreError, match="is not an a3r database"):
        Store.open(text)
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        Store.open(tmp_path / "missing" / "a3r.db")
    assert "folder exists" in caught.value.hint


def test_a_lock_that_lasts_is_told_and_readers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a3r.db"
    with Store.open(path, busy_timeout_s=0.05) as store:
        campaign = store.create_campaign("c", "", "", {}, ReviewMode.STAGE, "sweep", 1.0)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="is locked") as caught:
                store.request_stop(campaign.id)
            assert store.campaigns() == [campaign]
        assert "doctor" in caught.value.hint
        assert store.request_stop(campaign.id).stop_requested_at is not None


def test_a_full_disk_and_a_read_only_file_are_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a3r.db"
    with closing(sqlite3.connect(path)) as full:
        full.execute("CREATE TABLE t (x)")
        full.execute("PRAGMA max_page_count = 2")
        with pytest.raises(StoreError, match="the disk is full"), translated(path):
            full.execute("INSERT INTO t VALUES (zeroblob(100000))")
    fixed = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(StoreError, match="is read-only") as caught, translated(path):
        fixed.execute("INSERT INTO t VALUES (1)")
    fixed.close()
    assert "permission" in caught.value.hint


def test_a_failed_write_leaves_nothing_behind(study: Any, store: Store) -> None:
    before = store.events(study.campaign_id)
    bad = {"q": float("nan")}
    with pytest.raises(StoreError, match="finite"):
        store.add_decision(study.campaign_id, None, "what", "why", bad, 1.0)
    assert store.decisions(study.campaign_id) == []
    assert store.events(study.campaign_id) == before


def test_a_path_with_blanks_and_other_letters_works(tmp_path: Path) -> None:
    folder = tmp_path / "my größe #1 100%?"
    folder.mkdir()
    with Store.open(folder / "a3r.db") as store:
        store.put_artifact(b"x")
        assert store.campaigns() == []
    assert {p.name for p in folder.iterdir()} >= {"a3r.db", "artifacts"}


def test_a_long_poll_wakes_with_the_next_write(study: Any, store: Store) -> None:
    seen = store.changed.count
    woken: list[int] = []
    waiter = threading.Thread(target=lambda: woken.append(store.changed.wait(seen, 30.0)))
    waiter.start()
    store.add_event(study.campaign_id, "a", "k", "s", {}, 1.0)
    waiter.join(10.0)
    assert woken == [seen + 1]
    assert store.changed.wait(seen, 30.0) == seen + 1
    assert store.changed.wait(seen + 1, 0.01) == seen + 1


def test_reading_and_writes_that_change_nothing_wake_nobody(study: Any, store: Store) -> None:
    store.queue_attempt(study.run().id, 1.0)
    store.request_stop(study.campaign_id)
    seen = store.changed.count
    assert store.claim_attempt("w", 2.0, 5.0) is None
    assert store.expire_leases(3.0, 0.0) == []
    store.request_stop(study.campaign_id)
    store.campaigns()
    store.events(study.campaign_id)
    assert store.changed.count == seen


def _pragma(path: Path, name: str) -> Any:
    with closing(sqlite3.connect(path)) as file:
        row = file.execute(f"PRAGMA {name}").fetchone()
        return row and row[0]
