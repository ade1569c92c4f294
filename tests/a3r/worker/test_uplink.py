import base64

import pytest

from a3r.blueprints.model import Limits
from a3r.core.errors import Conflict, HubUnreachable
from a3r.core.types import FailureClass
from a3r.core.wire import AttemptSpec, FinishReport
from a3r.testing.fake_hub import FakeHub
from a3r.worker.deadlines import overdue
from a3r.worker.folder import AttemptFolder, Memo, append_lines, read_lines
from a3r.worker.supervisor import write_json
from a3r.worker.uplink import CHUNK_BYTES, AttemptUplink, Backoff


@pytest.fixture
def hub():
    return FakeHub()


@pytest.fixture
def attempt(hub):
    spec = AttemptSpec(
        attempt_id="a-1",
        run_id="r",
        campaign_id="c",
        label="x",
        ordinal=1,
        nonce="n",
        fencing_token=0,
        lease_s=15,
        seed=1,
        blueprint={},
        client_artifact="",
    )
    return hub.queue(spec)


@pytest.fixture
def folder(tmp_path, attempt):
    folder = AttemptFolder.of(tmp_path, "a-1")
    folder.save_spec(attempt.spec)
    (folder.path / "logs").mkdir()
    return folder


def uplink(folder, hub, refused=None):
    return AttemptUplink(folder, hub, (refused if refused is not None else []).append)


def report(outcome="failed"):
    return FinishReport(fencing_token=0, outcome=outcome, failure=FailureClass.STALL, reason="x")


def test_raw_log_bytes_arrive_whole_and_in_order_whatever_they_are(folder, hub, attempt):
    data = bytes(range(256)) * 4096 + b"\r\xff end"
    folder.log("client").write_bytes(data[:100])
    link = uplink(folder, hub)
    link.send()
    assert attempt.logs["client"] == data[:100]
    folder.log("client").write_bytes(data)
    for _ in range(-(-len(data) // CHUNK_BYTES)):
        link.send()
    assert attempt.logs["client"] == data


def test_what_was_acknowledged_is_not_sent_again_by_the_next_worker(folder, hub, attempt):
    append_lines(folder.steps_file, [{"step": 1}, {"step": 2}])
    folder.log("client").write_bytes(b"abc")
    uplink(folder, hub).send()
    append_lines(folder.steps_file, [{"step": 3}])
    folder.log("client").write_bytes(b"abcdef")
    sent = []
    keep = hub.steps, hub.logs
    hub.steps = lambda name, r: (sent.append([s["step"] for s in r.steps]), keep[0](name, r))
    hub.logs = lambda name, r: (sent.append(base64.b64decode(r.data_b64)), keep[1](name, r))
    uplink(folder, hub).send()
    assert sent == [[3], b"def"]
    assert sorted(attempt.steps) == [1, 2, 3]
    assert attempt.logs["client"] == b"abcdef"


def test_a_log_that_the_hub_lost_a_part_of_is_sent_again_from_there(folder, hub, attempt):
    folder.log("client").write_bytes(b"abcdef")
    link = uplink(folder, hub)
    link.send()
    attempt.logs["client"] = b"ab"
    folder.log("client").write_bytes(b"abcdefgh")
    link.send()
    assert attempt.logs["client"] == b"abcdefgh"
    assert not link.over


def test_the_finish_report_goes_last_and_only_once(folder, hub, attempt):
    append_lines(folder.steps_file, [{"step": 1}])
    folder.log("server").write_bytes(b"x" * (CHUNK_BYTES * 6))
    write_json(folder.finish_file, report().model_dump(mode="json"))
    link = uplink(folder, hub)
    hub.away = True
    with pytest.raises(HubUnreachable):
        link.send()
    assert not link.over
    hub.away = False
    link.send()
    assert link.over
    assert attempt.finish == report()
    assert len(attempt.logs["server"]) == CHUNK_BYTES * 6
    assert uplink(folder, hub).over


def test_a_stale_fencing_token_ends_the_sending_and_is_told_once(folder, hub, attempt):
    append_lines(folder.steps_file, [{"step": 1}])
    hub.give_up("a-1")
    refused = []
    link = uplink(folder, hub, refused)
    link.send()
    link.send()
    assert link.over
    assert len(refused) == 1
    assert "stale" in refused[0]
    assert attempt.steps == {}
    assert folder.steps() == [{"step": 1}]
    with pytest.raises(Conflict):
        hub.finish("a-1", report())


def test_a_log_that_the_hub_cannot_take_does_not_cost_the_attempt_its_result(
    folder, attempt, caplog
):
    class Picky(FakeHub):
        def logs(self, attempt_id, request):
            if request.name == "odd":
                raise Conflict("'odd' cannot name a log")
            super().logs(attempt_id, request)

    picky = Picky()
    queued = picky.queue(attempt.spec)
    folder.log("odd").write_bytes(b"x")
    folder.log("server").write_bytes(b"y")
    sending = uplink(folder, picky)
    sending.send()
    write_json(folder.finish_file, report().model_dump(mode="json"))
    sending.send()
    assert queued.finish == report()
    assert dict(queued.logs) == {"server": b"y"}
    assert ["stays here" in r.getMessage() for r in caplog.records] == [True]  # said once


def test_half_a_line_left_by_a_crash_is_cut_off(tmp_path):
    path = tmp_path / "x.jsonl"
    append_lines(path, [{"a": 1}])
    with path.open("ab") as file:
        file.write(b'{"a": 2')
    assert list(read_lines(path)) == [{"a": 1}]
    append_lines(path, [{"a": 3}])
    assert list(read_lines(path)) == [{"a": 1}, {"a": 3}]


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ""])
def test_an_attempts_id_cannot_leave_its_folder(tmp_path, name):
    with pytest.raises(Exception, match="cannot name a folder"):
        AttemptFolder.of(tmp_path, name)


def test_backoff_grows_to_its_bound_and_starts_again_after_a_success():
    backoff = Backoff(1.0, 5.0)
    assert [backoff.failed() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    backoff.worked()
    assert backoff.failed() == 1.0


LIMITS = Limits(max_time_s=100, first_step_deadline_s=20, stall_deadline_s=10)


@pytest.mark.parametrize(
    ("memo", "now", "found"),
    [
        ({"step": 0}, 19, None),
        ({"step": 0}, 21, FailureClass.STALL),
        ({"step": 0, "progress_at": 15}, 34, None),  # a restart or a round's end in between
        ({"step": 3, "progress_at": 50}, 59, None),
        ({"step": 3, "progress_at": 50}, 61, FailureClass.STALL),
        ({"step": 3, "progress_at": 50, "blocked": "no credit"}, 90, None),
        ({"step": 3, "progress_at": 99}, 101, FailureClass.MAX_TIME),
        ({"step": 9, "progress_at": 50, "phase": "evaluating"}, 61, None),
        ({"step": 9, "progress_at": 50, "phase": "evaluating"}, 96, FailureClass.STALL),
        ({"step": 3, "progress_at": 50, "phase": "stopping"}, 80, None),
    ],
)
def test_deadlines_count_from_the_last_progress(memo, now, found):
    late = overdue(Memo(started_at=0.0, **{"phase": "running", **memo}), LIMITS, now)
    assert (late and late[0]) == found


def test_time_in_which_an_attempt_waits_for_a_person_is_not_its_own():
    waiting = Memo(started_at=0.0, phase="running", step=3, blocked="no credit", blocked_at=50.0)
    assert overdue(waiting, LIMITS, 10_000) is None
    after = Memo(started_at=0.0, phase="running", step=3, waited_s=500.0, progress_at=599.0)
    assert overdue(after, LIMITS, 599) is None
    late = overdue(after, LIMITS, 601)
    assert late is not None
    assert late[0] is FailureClass.MAX_TIME


def test_a_success_that_the_hub_finds_incomplete_is_reported_as_failed_with_its_reason(
    folder, hub, attempt
):
    class Strict(FakeHub):
        def finish(self, attempt_id, request):
            if request.outcome == "succeeded":
                raise Conflict("it cannot succeed: step 2 is missing", missing=["step 2"])
            super().finish(attempt_id, request)

    strict = Strict()
    queued = strict.queue(attempt.spec)
    write_json(folder.finish_file, report("succeeded").model_dump(mode="json"))
    link = uplink(folder, strict)
    link.send()
    assert link.over
    assert queued.finish is not None
    assert queued.finish.outcome == "failed"
    assert "step 2 is missing" in queued.finish.reason
