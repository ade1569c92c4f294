from pathlib import Path

import pytest

from a3r.core.types import FailureClass
from a3r.worker.failures import REMEDIES, Action, classify
from a3r.worker.processes import ExitRecord
from a3r.worker.repair import last_line

TAILS = sorted((Path(__file__).parent / "log_tails").glob("*.log"))


def record_of(how):
    """The exit record that a corpus file's name tells."""
    if how.isdigit():
        return ExitRecord(code=int(how))
    if how.startswith("SIG"):
        return ExitRecord(signal=how)
    return {
        "oom": ExitRecord(signal="SIGKILL", oom_kills=1),
        "unknown": ExitRecord(unknown=True),
        "asked": ExitRecord(code=1, asked_by="SIGTERM"),
        "max_time": ExitRecord(signal="SIGTERM", asked_by="max_time", timed_out=True),
    }[how]


@pytest.mark.parametrize("path", TAILS, ids=lambda p: p.stem)
def test_a_log_tail_is_classified(path):
    name, role, how = path.stem.rsplit(".", 2)
    found = classify(role, record_of(how), path.read_bytes(), external=True)
    assert found.value == name.partition("--")[0]


def test_the_corpus_covers_every_class_that_a_process_can_show():
    shown = {path.name.partition("--")[0] for path in TAILS}
    # The one is told by leases, the other by the steps' metrics.
    others = {FailureClass.HOST_LOST.value, FailureClass.STOP_RULE.value}
    assert {c.value for c in FailureClass} - shown == others


def test_without_external_models_only_a_swarm_server_can_be_down_and_the_client_starts_again():
    tail = b"openai.APIConnectionError: Connection error.\n"
    assert classify("client", record_of("1"), tail) is FailureClass.CLIENT_CRASH
    assert classify("client", record_of("1"), tail, external=True) is FailureClass.EXTERNAL_DOWN


def test_every_class_has_a_remedy_and_permanent_ones_are_never_retried():
    assert set(REMEDIES) == set(FailureClass)
    assert all(r.action is Action.FAIL for r in REMEDIES.values() if r.permanent)
    blocking = {c for c, r in REMEDIES.items() if r.action is Action.BLOCK}
    person = {FailureClass.AUTH, FailureClass.OUT_OF_CREDIT, FailureClass.DISK_FULL}
    assert blocking == person | {FailureClass.RATE_LIMIT, FailureClass.EXTERNAL_DOWN}


def test_a_program_that_could_not_be_started_is_classified_by_its_reason():
    gone = ExitRecord(error="cannot start '/x/python': [Errno 2] No such file or directory")
    assert classify("client", gone, b"") is FailureClass.DATA_MISSING
    full = ExitRecord(error="cannot write start.json: [Errno 28] No space left on device")
    assert classify("client", full, b"") is FailureClass.DISK_FULL


def test_the_last_line_skips_our_marks_and_survives_bad_bytes():
    tail = b"first\nlast \xff word\r\n\n--- a3r end client.1 n 1.0 code=1 signal=None ---\n"
    assert last_line(tail) == "last \ufffd word"
    assert (
        last_line(b"docker: no daemon\n\nRun 'docker run --help' for more\n") == "docker: no daemon"
    )
    assert last_line(b"") == "the log is empty"
