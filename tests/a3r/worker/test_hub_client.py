"""The client of the hub against a plain HTTP server."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from a3r.core.errors import A3RError, AuthFailed, Conflict, HubUnreachable
from a3r.core.wire import ClaimRequest, LogChunk
from a3r.testing.waiting import retry_until as until
from a3r.worker.hub_client import HubClient, fixed, from_ready_file, process_of, read_token
from a3r.worker.supervisor import start_time


class Answers(BaseHTTPRequestHandler):
    """Answers with what the server was told to answer, and notes what was asked."""

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.server.asked.append((self.command, self.path, self.headers["Authorization"], body))
        status, data = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_args):
        """Be quiet."""


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.asked, server.answer = [], (200, b"{}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url(server):
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"admin": "a", "worker": "the-token"}))
    return path


@pytest.fixture
def hub(server, token_file):
    hub = HubClient(fixed(url(server), token_file))
    yield hub
    hub.close()


def refusal(code):
    return json.dumps({"error": {"code": code, "message": "no", "hint": "try"}}).encode()


def test_a_claim_travels_with_the_worker_token_and_may_bring_nothing(hub, server):
    assert hub.claim(ClaimRequest(worker_id="w", free_slots=1)) is None
    method, path, authorization, body = server.asked[0]
    assert (method, path, authorization) == ("POST", "/worker/v1/claim", "Bearer the-token")
    assert json.loads(body)["worker_id"] == "w"


def test_an_artifact_comes_as_raw_bytes(hub, server):
    server.answer = (200, b"\x00\xff tar")
    assert hub.artifact("ab" * 32) == b"\x00\xff tar"
    assert server.asked[0][:2] == ("GET", f"/worker/v1/artifacts/{'ab' * 32}")


@pytest.mark.parametrize(
    ("status", "data", "error"),
    [
        (409, refusal("conflict"), Conflict),
        (401, refusal("auth_failed"), AuthFailed),
        (500, refusal("something_new"), A3RError),
        (502, b"<html>bad gateway</html>", HubUnreachable),
    ],
)
def test_a_refusal_becomes_the_error_that_it_names(hub, server, status, data, error):
    server.answer = (status, data)
    with pytest.raises(error):
        hub.logs("a-1", LogChunk(fencing_token=1, name="client", offset=0, data_b64=""))


def test_a_hub_that_moved_is_found_again_by_its_ready_record(server, token_file, tmp_path):
    ready = tmp_path / "ready.json"
    hub = HubClient(from_ready_file(ready, token_file))
    with pytest.raises(HubUnreachable, match=r"\?"):
        hub.claim(ClaimRequest(worker_id="w", free_slots=1))
    ready.write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    with pytest.raises(HubUnreachable, match=r"127\.0\.0\.1:1 "):
        hub.claim(ClaimRequest(worker_id="w", free_slots=1))
    ready.write_text(json.dumps({"url": url(server)}))
    assert hub.claim(ClaimRequest(worker_id="w", free_slots=1)) is None
    hub.close()


def test_no_token_is_sent_to_the_port_of_a_daemon_that_was_killed(server, token_file, tmp_path):
    ready = tmp_path / "ready.json"
    daemon = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ready.write_text(json.dumps({"url": url(server), "pid": daemon.pid}))
    hub = HubClient(from_ready_file(ready, token_file), lives=process_of(ready))
    claim = ClaimRequest(worker_id="w", free_slots=1)
    assert hub.claim(claim) is None
    daemon.kill()
    until(lambda: start_time(daemon.pid) is None)  # nobody has taken note of its end yet
    with pytest.raises(HubUnreachable):
        hub.claim(claim)
    daemon.communicate()
    with pytest.raises(HubUnreachable):
        hub.claim(claim)
    assert len(server.asked) == 1
    hub.close()


def test_a_hub_whose_tls_is_not_as_expected_is_told_with_the_option_that_helps(server, token_file):
    hub = HubClient(fixed(url(server).replace("http:", "https:"), token_file))
    with pytest.raises(HubUnreachable, match="SSL") as refused:
        hub.claim(ClaimRequest(worker_id="w", free_slots=1))
    assert "--ca-file" in refused.value.hint
    assert server.asked == []
    hub.close()


def test_a_token_file_holds_the_bare_token_or_the_hubs_table(token_file, tmp_path):
    bare = tmp_path / "token"
    bare.write_text("bare\n")
    assert (read_token(token_file), read_token(bare)) == ("the-token", "bare")
    bare.write_text("{}")
    with pytest.raises(OSError, match="no worker token"):
        read_token(bare)


def test_a_hub_that_took_leave_is_not_dialled_because_its_port_may_be_a_strangers(
    server, token_file, tmp_path
):
    ready = tmp_path / "ready.json"
    ready.write_text(json.dumps({"url": url(server), "pid": 0}))
    hub = HubClient(from_ready_file(ready, token_file))
    with pytest.raises(HubUnreachable):
        hub.claim(ClaimRequest(worker_id="w", free_slots=1))
    hub.close()
