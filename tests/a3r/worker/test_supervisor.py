import json
import os
import signal
import subprocess
import sys
import time

import pytest

from a3r.testing.waiting import retry_until as until
from a3r.worker import supervisor
from a3r.worker.processes import ProcessState, read_json, supervisor_argv

FOREVER = "import time\nwhile True: time.sleep(0.05)"
DEAF = "import signal, time\nsignal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\nwhile True: time.sleep(0.05)"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def alive(pid):
    return supervisor.start_time(pid) is not None


def test_an_exit_code_and_every_byte_of_output_are_kept(bench):
    process = bench.start(
        r"import sys; sys.stdout.buffer.write(b'a\xff\xfe\r\0b\n'); sys.stderr.write('é\n'); sys.exit(7)"
    )
    record = bench.ended(process)
    assert (record["code"], record["signal"], record["asked_by"]) == (7, None, None)
    assert record["cpu_s"] > 0
    raw = bench.log().read_bytes()
    assert b"a\xff\xfe\r\0b\n" in raw
    assert "é".encode() in raw
    begin, end = raw.split(b"\n")[0], raw.rstrip().split(b"\n")[-1]
    assert begin.startswith(b"--- a3r begin client.1 " + bench.nonce.encode())
    assert end.startswith(b"--- a3r end client.1 " + bench.nonce.encode())
    assert process.state() is ProcessState.EXITED


def test_a_signal_that_nobody_asked_for_is_told_apart(bench):
    record = bench.ended(bench.start("import os; os.kill(os.getpid(), 9)"))
    assert (record["code"], record["signal"], record["asked_by"]) == (None, "SIGKILL", None)


def test_a_program_that_does_not_exist_has_an_exit_record_with_the_reason(bench):
    process = bench.start(["/no/such/program"])
    record = bench.ended(process)
    assert "cannot start '/no/such/program'" in record["error"]
    assert process.exit().words().startswith("cannot start")


def test_the_child_gets_a_clean_environment_with_its_marks(bench, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    process = bench.start("import os, json; print(json.dumps(dict(os.environ)))")
    bench.ended(process)
    line = next(x for x in bench.log().read_text().splitlines() if x.startswith("{"))
    env = json.loads(line)
    assert (env["A3R_NONCE"], env["A3R_PROCESS"]) == (bench.nonce, "client.1")
    assert env["OMP_NUM_THREADS"] == "1"
    assert "OPENAI_API_KEY" not in env
    assert supervisor.DETACH not in env


def test_term_ends_a_child_and_says_who_asked(bench):
    process = bench.start(FOREVER)
    bench.child(process)
    assert process.state() is ProcessState.RUNNING
    process.terminate()
    record = bench.ended(process)
    assert (record["signal"], record["asked_by"]) == ("SIGTERM", "SIGTERM")


def test_a_child_that_ignores_term_is_killed_after_the_grace(bench):
    process = bench.start(DEAF, grace_s=0.4)
    until(lambda: b"deaf" in process.log_tail())
    asked = time.monotonic()
    process.terminate()
    assert bench.ended(process)["signal"] == "SIGKILL"
    assert time.monotonic() - asked > 0.3


def test_a_child_that_takes_too_long_is_ended_and_marked(bench):
    record = bench.ended(bench.start(FOREVER, max_time_s=0.3))
    assert record["timed_out"] is True
    assert record["asked_by"] == "max_time"


def test_descendants_go_with_the_child_and_foreign_processes_stay(bench):
    foreign = subprocess.Popen([sys.executable, "-c", FOREVER])
    try:
        process = bench.start(
            "import subprocess, sys, os\n"
            f"code = {DEAF!r}\n"
            # one in a session of its own, and one that also hides its environment
            "a = subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
            "b = subprocess.Popen([sys.executable, '-c', code], start_new_session=True, env={})\n"
            "print('pids', a.pid, b.pid, flush=True)\n"
            "import time; time.sleep(0.3); os._exit(3)",
            grace_s=0.3,
        )
        record = bench.ended(process)
        words = next(x for x in bench.log().read_text().splitlines() if x.startswith("pids"))
        pids = [int(word) for word in words.split()[1:]]
        assert record["code"] == 3
        assert record["leftovers"] == 2
        assert not any(alive(pid) for pid in pids)
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_a_pid_that_was_reused_gets_no_signal():
    process = subprocess.Popen([sys.executable, "-c", FOREVER])
    try:
        started = until(lambda: supervisor.start_time(process.pid))
        assert supervisor.send(process.pid, started - 1, signal.SIGKILL) is False
        assert process.poll() is None
        assert supervisor.send(process.pid, started, signal.SIGKILL) is True
        assert process.wait(5) == -9
        assert supervisor.start_time(process.pid) is None
    finally:
        process.kill()
        process.wait()


def test_a_killed_supervisor_leaves_an_unknown_exit_and_its_child_can_be_swept(bench):
    process = bench.start(FOREVER)
    start = bench.child(process)
    os.kill(start["supervisor"]["pid"], signal.SIGKILL)
    until(lambda: process.state() is ProcessState.UNKNOWN)
    assert process.exit().unknown
    assert alive(start["child"]["pid"])
    assert process.sweep(0.3) == 1
    assert not alive(start["child"]["pid"])


def test_a_killed_supervisor_is_survived_by_nobody_whom_it_had_seen(bench):
    process = bench.start(
        "import os, subprocess, sys, time\n"
        f"code = {DEAF!r}\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    b = subprocess.Popen([sys.executable, '-c', code], start_new_session=True, env={})\n"
        "    print('pid', b.pid, flush=True); os._exit(0)\n"
        "os.wait(); time.sleep(600)"
    )
    start = bench.child(process)
    until(lambda: b"pid" in bench.log().read_bytes())
    words = next(x for x in bench.log().read_text().splitlines() if x.startswith("pid"))
    escaped = int(words.split()[1])

    def seen():
        return str(escaped) in (read_json(process.folder / "heartbeat.json") or {}).get(
            "family", {}
        )

    until(seen, what="the record of the descendant")
    os.kill(start["supervisor"]["pid"], signal.SIGKILL)
    until(lambda: process.state() is ProcessState.UNKNOWN)
    assert process.sweep(0.3) == 2
    assert not alive(escaped)


def test_a_second_supervisor_of_the_same_start_leaves_at_once(bench):
    process = bench.start(FOREVER)
    first = bench.child(process)
    assert subprocess.run(supervisor_argv(process.folder), check=False, timeout=10).returncode == 0
    assert bench.child(process) == first
    process.terminate()
    bench.ended(process)
    assert bench.log().read_bytes().count(b"--- a3r begin") == 1


def test_a_start_that_was_called_off_never_happens(bench):
    process = bench.start(FOREVER, name="client.1")
    bench.child(process)
    process.terminate()
    bench.ended(process)
    folder = bench.folder / "proc" / "client.2"
    folder.mkdir()
    spec = {**process.spec(), "record_dir": str(folder), "label": "client.2"}
    (folder / "spec.json").write_text(json.dumps(spec))
    late = type(process)(folder)
    assert late.state() is ProcessState.STARTING
    late.terminate()
    bench.launcher.start_directly(folder)
    assert not (folder / "start.json").exists()


def test_the_child_goes_on_when_the_output_of_the_supervisor_breaks(bench):
    process = bench.start("print('first')")
    bench.ended(process)
    folder = bench.folder / "proc" / "client.2"
    folder.mkdir()
    code = "import time\nfor i in range(20): print('line', i, 'x' * 9000, flush=True); time.sleep(0.02)"
    spec = {**process.spec(), "record_dir": str(folder), "label": "client.2"}
    spec["argv"] = [sys.executable, "-c", code]
    (folder / "spec.json").write_text(json.dumps(spec))
    piped = bench.piped(folder)
    assert b"line 0" in piped.stdout.read(20)
    piped.stdout.close()
    piped.send_signal(signal.SIGHUP)
    assert piped.wait(15) == 0
    assert json.loads((folder / "exit.json").read_text())["code"] == 0
    assert b"line 19" in bench.log().read_bytes()
    assert b"line 19" in type(process)(folder).log_tail()
    assert b"first" not in type(process)(folder).log_tail(10**6)


def test_a_supervisor_whose_records_were_deleted_does_not_stay_for_ever(bench):
    process = bench.start("print('first')")
    bench.ended(process)
    folder = bench.folder / "proc" / "client.2"
    folder.mkdir()
    spec = {**process.spec(), "record_dir": str(folder), "label": "client.2", "gone_s": 2.0}
    spec["argv"] = [sys.executable, "-c", FOREVER]
    (folder / "spec.json").write_text(json.dumps(spec))
    piped = bench.piped(folder)
    child = bench.child(type(process)(folder))["child"]["pid"]
    folder.rename(
        bench.folder / "away"
    )  # at once: a heartbeat may be written while files are deleted
    os.kill(child, signal.SIGKILL)
    piped.stdout.close()
    assert piped.wait(30) == 0
    assert not folder.exists()


def test_a_reader_that_stops_reading_does_not_hold_the_child_up(bench):
    process = bench.start("print('x')")
    bench.ended(process)
    folder = bench.folder / "proc" / "client.2"
    folder.mkdir()
    spec = {**process.spec(), "record_dir": str(folder), "label": "client.2"}
    spec["argv"] = [sys.executable, "-c", "print('y' * 3_000_000)"]
    (folder / "spec.json").write_text(json.dumps(spec))
    piped = bench.piped(folder)
    try:
        until(lambda: (folder / "exit.json").exists())
        assert bench.log().stat().st_size > 3_000_000
    finally:
        piped.stdout.close()
        piped.wait(10)


def test_a_long_log_keeps_its_begin_and_its_end(tmp_path):
    log = supervisor.Log(tmp_path / "a.log", limit=1000)
    for number in range(100):
        log.write(b"%030d\n" % number)
    log.close()
    assert (tmp_path / "a.log").read_bytes().startswith(b"%030d\n" % 0)
    assert b"continues in a.log.1" in (tmp_path / "a.log").read_bytes()
    end = (tmp_path / "a.log.2").read_bytes() + (tmp_path / "a.log.1").read_bytes()
    assert end.endswith(b"%030d\n" % 99)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 3200
    assert log.lost == 0


def test_heartbeats_are_written_while_the_child_runs(bench):
    process = bench.start(FOREVER)
    first = until(lambda: _beat(process))
    assert until(lambda: _beat(process)["at"] > first["at"], 5)
    process.terminate()
    bench.ended(process)


def _beat(process):
    path = process.folder / "heartbeat.json"
    return json.loads(path.read_text()) if path.exists() else None
