"""Ray's job server as its interface says it is; against a real cluster it is tested in tests/a3r/cli/test_pool.py."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from a3r.adapters.ray_jobs import RayJobs
from a3r.core.errors import PoolRefused, PoolUnavailable
from a3r.core.pools import JobAsk, PoolJobState, PoolOptions

ASK = JobAsk("pj-1", ("python", "-m", "a3r", "it's"), {"A3R_POOL_TICKET": "t"})


class JobServer(ThreadingHTTPServer):
    """Keeps jobs in memory; refuses a submission when told to."""

    jobs: dict[str, Any]
    submissions: list[Any]
    stops: list[str]
    token = ""
    refuse = ""


class Handler(BaseHTTPRequestHandler):
    server: JobServer

    def do_GET(self) -> None:
        job = self.server.jobs.get(self.path.rsplit("/", 1)[-1])
        self._answer(404 if job is None else 200, job or {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/stop"):
            self.server.stops.append(self.path.split("/")[-2])
            self._answer(200, {"stopped": True})
            return
        known = body["submission_id"] in self.server.jobs
        self.server.submissions.append(body)
        self._answer(500 if known or self.server.refuse else 200, {"why": self.server.refuse})
        if not self.server.refuse:
            self.server.jobs[body["submission_id"]] = {"status": "PENDING", "message": "waits"}

    def _answer(self, status: int, body: Any) -> None:
        wanted = f"Bearer {self.server.token}"
        refused = self.server.token and self.headers["Authorization"] != wanted
        self.send_response(401 if refused else status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_args: Any) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[JobServer]:
    made = JobServer(("127.0.0.1", 0), Handler)
    made.jobs, made.submissions, made.stops = {}, [], []
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def engine(server: JobServer, **options: Any) -> RayJobs:
    address = f"http://127.0.0.1:{server.server_port}"
    return RayJobs(PoolOptions.model_validate({"address": address, **options}))


def test_a_job_is_submitted_under_our_id_with_its_needs_and_environment(
    server: JobServer,
) -> None:
    made = engine(server, gpus=1, slots=2, memory_gb=2, runtime_env={"env_vars": {"X": "1"}})
    assert made.submit(ASK) == "pj-1"
    (body,) = server.submissions
    assert body["entrypoint"] == "exec python -m a3r 'it'\"'\"'s'"
    assert body["entrypoint_num_gpus"] == 1
    assert body["entrypoint_num_cpus"] == 2.0  # without any, Ray would run it on the head
    assert body["entrypoint_memory"] == 2 * 2**30
    variables = body["runtime_env"]["env_vars"]
    assert (variables["X"], variables["A3R_POOL_TICKET"]) == ("1", "t")
    assert made.look({"pj-1": ""})["pj-1"].state is PoolJobState.QUEUED


def test_submitting_again_gives_the_job_that_is_there(server: JobServer) -> None:
    made = engine(server)
    assert made.submit(ASK) == made.submit(ASK)
    assert len(server.jobs) == 1


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PENDING", PoolJobState.QUEUED),
        ("RUNNING", PoolJobState.STARTING),
        ("SUCCEEDED", PoolJobState.ENDED),
        ("STOPPED", PoolJobState.FAILED),
        ("FAILED", PoolJobState.FAILED),
    ],
)
def test_rays_states_are_understood_and_what_it_does_not_know_is_left_out(
    server: JobServer, status: str, state: PoolJobState
) -> None:
    server.jobs["pj-1"] = {"status": status, "message": "two\nlines"}
    found = engine(server).look({"pj-1": "pj-1", "pj-2": "pj-2"})
    assert list(found) == ["pj-1"]
    assert (found["pj-1"].state, found["pj-1"].detail) == (state, "two lines")


def test_a_refusal_is_told_in_rays_words(server: JobServer) -> None:
    server.refuse = "no such resource"
    with pytest.raises(PoolRefused, match="no such resource"):
        engine(server).submit(ASK)


def test_a_cluster_with_a_token_lets_us_in_with_it_alone(server: JobServer, tmp_path: Path) -> None:
    server.token = "secret"
    with pytest.raises(PoolRefused, match="401") as refused:
        engine(server).look({"pj-1": ""})
    assert "--token-file" in refused.value.hint
    file = tmp_path / "token"
    file.write_text("secret\n")
    made = engine(server, token_file=str(file))
    made.submit(ASK)
    made.stop(["pj-1"])
    assert server.stops == ["pj-1"]


def test_a_job_server_that_is_away_or_answers_nonsense_is_asked_again_later(
    server: JobServer,
) -> None:
    server.jobs["pj-1"] = {"status": "DREAMING"}
    with pytest.raises(PoolUnavailable, match="DREAMING"):
        engine(server).look({"pj-1": ""})
    away = RayJobs(PoolOptions(address="http://127.0.0.1:1"))
    with pytest.raises(PoolUnavailable, match="does not answer"):
        away.submit(ASK)
