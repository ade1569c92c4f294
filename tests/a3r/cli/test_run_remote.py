"""What a worker is asked for on the command line: pages of a log put together, refusals told, an episode as lines."""

import base64

import pytest

from a3r.cli.run_remote import WAIT_S, ask, attempt_of, remote_pages, trace_lines
from a3r.core.errors import HostError, NotFound
from a3r.hub.client import segment

LOG = b"0123456789" * 3


class Asked:
    """The hub's side of a question: a worker with one log, which gives at most ten bytes at once."""

    def __init__(self, **row):
        self.row, self.paths = row, []

    def post(self, path, body):
        self.paths.append(path)
        if self.row:
            return self.row
        size, begin = len(LOG), body["offset"]
        begin = max(0, size + begin) if begin < 0 else begin
        piece = base64.b64encode(LOG[begin : begin + 10]).decode()
        return {"state": "done", "result": {"data_b64": piece, "offset": begin, "size": size}}


@pytest.mark.parametrize("offset", [0, 7, -12, -99, 30])
def test_a_log_is_put_together_from_pages(offset):
    client = Asked()
    found = remote_pages(client, "a-1", "server", offset)
    begin = max(0, len(LOG) + offset) if offset < 0 else offset
    assert found == {"name": "server", "offset": begin, "size": 30, "data": LOG[begin:]}
    assert set(client.paths) == {"attempts/a-1/ask"}


@pytest.mark.parametrize("name", ["", " ", "a/b", "../x", "x" * 5000])
def test_what_can_be_no_name_is_refused_before_a_router_sees_it(name):
    with pytest.raises(NotFound, match="Nothing is named") as refused:
        segment(name)
    assert len(str(refused.value)) < 500
    assert "list" in refused.value.hint


def test_a_blueprint_is_named_with_its_campaign():
    assert segment("study/s1-b2", slashes=True) == "study%2Fs1-b2"


def test_a_refusal_and_a_silence_are_told_apart_and_escapes_do_no_harm():
    with pytest.raises(NotFound, match="says: no such log") as refused:
        ask(Asked(state="failed", result={"error": "no such log\x1b[2J"}), "a-1", "fetch_log")
    assert "\x1b" not in str(refused.value)
    with pytest.raises(HostError, match=f"did not answer within {WAIT_S:g} s"):
        ask(Asked(state="open", result=None), "a-1", "fetch_log")


def test_the_last_attempt_is_meant_unless_one_is_named():
    body = {"id": "r-1", "attempts": [{"ordinal": 1}, {"ordinal": 2}]}
    assert attempt_of(body, None) == {"ordinal": 2}
    assert attempt_of(body, 1) == {"ordinal": 1}
    with pytest.raises(NotFound, match="no attempt 3"):
        attempt_of(body, 3)
    with pytest.raises(NotFound, match="no attempt yet"):
        attempt_of({"id": "r-1", "attempts": []}, None)


def test_an_episode_is_told_once_and_what_was_said_before_is_not_repeated():
    first = {"role": "user", "content": "2+2?\x1b[31m"}
    answer = {"role": "assistant", "content": None, "tool_calls": [{"id": "t1"}]}
    call = {"finish_reason": "stop", "messages": [first], "reply": answer}
    second = {**call, "messages": [first, answer, {"role": "tool", "content": "4"}]}
    second["reply"] = {"role": "assistant", "content": "4"}
    told = {"episode_id": "e", "kind": "train", "task_id": "t", "state": "finished", "reward": 1.0}
    lines = trace_lines({**told, "calls": [call, second]})
    assert lines[0] == "episode e: train, task t, finished, reward 1"
    assert [line for line in lines if "2+2?" in line] == ["  user: 2+2?\ufffd[31m"]
    assert lines[-2:] == ["  tool: 4", "  reply: 4"]
    assert "\x1b" not in "".join(lines)
