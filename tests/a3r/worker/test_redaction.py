"""Secrets leave no host with its evidence, wherever a log is cut into pieces."""

import base64
import json

import pytest

from a3r.blueprints.model import EnvironmentSpec
from a3r.core.clock import SystemClock
from a3r.core.wire import ClaimRequest, Command, FinishReport
from a3r.worker.answers import answer
from a3r.worker.events import EventLog
from a3r.worker.folder import Memo
from a3r.worker.job import WorkerSettings
from a3r.worker.members import Member
from a3r.worker.prepare import write_tokens
from a3r.worker.redaction import Redactor, redactor_of
from a3r.worker.supervisor import write_json
from a3r.worker.uplink import AttemptUplink
from a3r.worker.worker import Worker

SECRET, LONGER = "sk-abcdef123456", "sk-abcdef123456-and-more"
ENV = {"JUDGE_KEY": SECRET, "OTHER": "not-named-by-the-blueprint"}


@pytest.fixture
def folder(lab):
    plain = lab.blueprint()
    needs = EnvironmentSpec(secret_names=("JUDGE_KEY", "NOWHERE"))
    client = plain.clients[0].model_copy(update={"environment": needs})
    attempt = lab.queue(plain.model_copy(update={"clients": (client,)}))
    folder = lab.folder()
    folder.save_spec(attempt.spec)
    folder.server.mkdir()
    (folder.path / "logs").mkdir()
    write_tokens(Member(folder))
    return folder


def test_stars_stand_where_a_secret_stood_and_offsets_stay_true():
    redactor = Redactor.of([SECRET, LONGER, "short", ""])
    data = f"a {LONGER} b {SECRET} c".encode()
    masked = redactor.mask(data)
    assert len(masked) == len(data)
    assert masked == b"a " + b"*" * len(LONGER) + b" b " + b"*" * len(SECRET) + b" c"
    assert redactor.value({"x": [f"key={SECRET}", 1, None]}) == {"x": ["key=[secret]", 1, None]}
    assert Redactor().mask(data) == data


def test_each_line_of_a_key_is_a_secret():
    redactor = Redactor.of(["-----BEGIN KEY-----\nMIIEpAIB\nAAKCAQEA\n"])
    assert b"MIIEpAIB" not in redactor.mask(b"line MIIEpAIB")


@pytest.mark.parametrize("size", range(1, 40))
def test_a_secret_is_found_wherever_the_pieces_are_cut(tmp_path, size):
    redactor = Redactor.of([SECRET, LONGER])
    data = f"{SECRET}x{LONGER}{SECRET}".encode() + b"\xff\0\n" + SECRET.encode()
    path = tmp_path / "log"
    path.write_bytes(data)
    pieces = [redactor.read(path, n, size) for n in range(0, len(data), size)]
    assert b"".join(pieces) == redactor.mask(data)


def test_half_a_secret_at_the_end_waits_for_the_rest_of_it(tmp_path):
    redactor = Redactor.of([SECRET])
    path = tmp_path / "log"
    path.write_bytes(b"key: " + SECRET[:5].encode())
    assert redactor.read(path, 0, 100, everything=False) == b"key: "
    assert redactor.read(path, 0, 100) == b"key: " + SECRET[:5].encode()
    path.write_bytes(b"key: " + SECRET.encode())
    assert redactor.read(path, 5, 100, everything=False) == b"*" * len(SECRET)
    path.write_bytes(b"key: sk-other")
    assert redactor.read(path, 0, 100, everything=False) == b"key: sk-other"


def test_tokens_and_named_secrets_are_known_and_nothing_else(folder):
    tokens = json.loads((folder.server / "tokens.json").read_text())
    found = redactor_of(folder, ENV)
    assert set(found.secrets) == {SECRET.encode(), *(t.encode() for t in tokens.values())}


def test_logs_events_and_reports_arrive_without_secrets_and_the_files_stay_raw(lab, folder):
    token = json.loads((folder.server / "tokens.json").read_text())["admin"]
    said = f"Traceback\nkey {SECRET}\n" + "x" * 5000 + f"\ntoken {token}\n"
    folder.log("client").write_text(said)
    EventLog(folder, SystemClock()).add("client", "process_exited", last_line=f"key {SECRET}")
    finish = FinishReport(fencing_token=0, outcome="failed", reason=f"client: key {SECRET}")
    write_json(folder.finish_file, finish.model_dump(mode="json"))
    attempt = lab.hub.attempts["a-0000001"]
    AttemptUplink(folder, lab.hub, print, ENV).send()
    assert len(attempt.logs["client"]) == len(said)
    everything = attempt.logs["client"].decode() + str(attempt.events) + str(attempt.finish)
    assert SECRET not in everything
    assert token not in everything
    assert attempt.finish.reason == "client: key [secret]"
    assert SECRET in folder.log("client").read_text()

    command = Command(kind="fetch_log", attempt_id="a-0000001", args={"name": "client"})
    told = answer(command, lab.home / "runs", "w-1", ENV)
    assert len(base64.b64decode(told.result["data_b64"])) == told.result["size"] == len(said)
    assert SECRET.encode() not in base64.b64decode(told.result["data_b64"])


def test_a_heartbeat_says_no_secret_that_a_blocked_attempts_reason_quotes(lab, folder):
    attempt = lab.hub.claim(ClaimRequest(worker_id="w-1", free_slots=1))
    folder.save_spec(attempt)
    words = f"auth: put a valid key there (client.1: Incorrect API key provided: {SECRET})"
    folder.save_memo(Memo(phase="running", blocked=words, blocked_role="client"))
    settings = WorkerSettings(lab.home, "w-1", "host", 1, 1)
    worker = Worker(settings, lab.hub, None, ENV)
    worker.adopt()
    try:
        reports = lab.hub.attempts["a-0000001"].reports
        worker._beat()  # the threads that do this all the time are not started
        assert "key provided: [secret]" in reports[-1].detail
        assert SECRET not in str(reports)
    finally:
        worker.stop_attempts("the test is over", 10)
        worker.leave()


def test_keys_of_an_object_are_words_too():
    assert Redactor.of([SECRET]).value({f"by {SECRET}": 1}) == {"by [secret]": 1}
