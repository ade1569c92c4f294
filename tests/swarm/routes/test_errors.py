import asyncio
import logging
import pickle

import httpx
import orjson
import pytest

from swarm.protocol.errors import EpisodeGone, NotFoundError, QueueFull, error_from_envelope
from swarm.server.routes.errors import ErrorBoundary, error_response, shown_path
from swarm.server.serve import SetupError


async def ask(app, path="/e/sk-swarm-secret/v1/x"):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as http:
        return await http.get(path)


async def test_an_unexpected_exception_is_500_logged_with_its_traceback_and_leaks_no_secret(caplog):
    async def broken(_scope, _receive, _send):
        raise ValueError("the token is sesame")

    with caplog.at_level(logging.ERROR):
        answer = await ask(ErrorBoundary(broken))
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert "ValueError" in error["message"]
    assert error["hint"]
    assert "sesame" not in answer.text
    assert caplog.records[0].exc_info
    assert "sk-swarm-secret" not in caplog.records[0].getMessage()


async def test_a_request_cut_by_the_shutdown_is_503(caplog):
    async def cancelled(_scope, _receive, _send):
        raise asyncio.CancelledError

    answer = await ask(ErrorBoundary(cancelled))
    assert answer.status_code == 503
    assert "x-should-retry" not in answer.headers


@pytest.mark.parametrize(
    ("error", "header", "value"),
    [(EpisodeGone("x"), "x-should-retry", "false"), (NotFoundError("x"), "x-should-retry", "false"), (QueueFull("x"), "retry-after", "1")],
)  # fmt: skip
def test_headers_tell_an_sdk_whether_to_retry(error, header, value):
    response = error_response(error)
    assert response.status_code == error.status
    assert response.headers[header] == value
    assert ("x-should-retry" in response.headers) == (header == "x-should-retry")


def test_the_client_gets_the_same_class_back():
    body = orjson.loads(error_response(EpisodeGone("over", hint="ask again", episode_id="e1")).body)
    back = error_from_envelope(body, 410)
    assert type(back) is EpisodeGone
    assert (back.message, back.hint, back.details) == ("over", "ask again", {"episode_id": "e1"})


def test_paths_are_shown_without_the_key():
    assert shown_path("/e/sk-swarm-abc/v1/models") == "/e/***/v1/models"
    assert shown_path("/swarm/status") == "/swarm/status"


def test_a_setup_error_survives_a_process_boundary():
    assert pickle.loads(pickle.dumps(SetupError("m", hint="h"))).hint == "h"
