"""Who may do what, and how failures are answered."""

import stat
from pathlib import Path
from typing import Any

import pytest

from a3r.core.errors import AuthFailed
from a3r.hub.tokens import TOKENS_FILE, WORKER_TOKEN_FILE, HubTokens, Role

ROUTES = [
    ("GET", "/api/v1/campaigns", "worker-token"),
    ("POST", "/api/v1/shutdown", "worker-token"),
    ("POST", "/worker/v1/claim", "admin-token"),
    ("GET", f"/worker/v1/artifacts/{'a' * 64}", "admin-token"),
]


@pytest.mark.parametrize(("method", "path", "wrong_role"), ROUTES)
async def test_a_request_without_the_right_token_is_refused(
    study: Any, told: Any, method: str, path: str, wrong_role: str
) -> None:
    for header in ({}, {"Authorization": "Bearer guess"}, {"Authorization": "Basic admin-token"}):
        reply = await study.http.request(method, path, headers=header)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "auth_failed"
    reply = await study.http.request(
        method, path, headers={"Authorization": f"Bearer {wrong_role}"}
    )
    assert reply.status_code == 401
    assert reply.json()["error"]["hint"]
    assert "token" not in reply.json()["error"]["details"]
    assert told.calls == []


async def test_health_needs_no_token_and_proves_who_answers(study: Any) -> None:
    plain = await study.http.get("/health")
    assert plain.json() == {"status": "ok"}
    proof = (await study.http.get("/health", params={"challenge": "abc"})).json()["proof"]
    tokens = HubTokens("admin-token", "worker-token")
    assert proof == tokens.proof("abc", "e1")
    assert proof != tokens.proof("abc", "another epoch")
    assert proof != HubTokens("another", "worker-token").proof("abc", "e1")


def test_tokens_are_minted_once_into_private_files(tmp_path: Path) -> None:
    first = HubTokens.load_or_mint(tmp_path)
    again = HubTokens.load_or_mint(tmp_path)
    assert first == again == HubTokens.read(tmp_path)
    assert first.role_of(first.admin) is Role.ADMIN
    assert first.role_of(first.worker) is Role.WORKER
    with pytest.raises(AuthFailed):
        first.role_of("")
    assert first.admin not in repr(first)
    assert (tmp_path / WORKER_TOKEN_FILE).read_text() == first.worker
    for name in (TOKENS_FILE, WORKER_TOKEN_FILE):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


async def test_unknown_routes_and_bad_bodies_are_answered_in_the_envelope(study: Any) -> None:
    lost = await study.api("GET", "nowhere")
    assert (lost.status_code, lost.json()["error"]["code"]) == (404, "not_found")
    bad = await study.api("POST", "campaigns", {"goal_text": 5})
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "request_invalid")
    assert "goal_text" in bad.json()["error"]["message"]


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(study: Any) -> None:
    headers = {"Authorization": "Bearer admin-token", "Content-Length": str(65 * 2**20)}
    reply = await study.http.post("/api/v1/campaigns", content=b"{}", headers=headers)
    assert reply.status_code == 413


async def test_a_defect_is_a_500_that_tells_no_details(study: Any) -> None:
    study.store.close()
    (study.store.folder / "a3r.db").unlink()
    study.hub.hooks = None
    body = {"goal_text": "metric secret-text", "goal_dir": "/g"}
    reply = await study.api("POST", "campaigns", body)
    assert reply.status_code == 500
    assert "secret-text" not in reply.text
    assert "daemon.log" in reply.json()["error"]["hint"]


async def test_shutdown_reaches_the_process(study: Any, told: Any) -> None:
    assert (await study.api("POST", "shutdown")).json() == {"stopping": True}
    assert told.calls == ["shutdown"]
