"""Workers of other hosts: over TLS, each with its own token, to their own routes only."""

import asyncio
import socket
import ssl
import stat
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trustme

from a3r.cli.daemon.door import Door, door_of
from a3r.cli.daemon.process import listen
from a3r.cli.daemon.starting import ensure_daemon
from a3r.core.errors import AuthFailed, HubUnreachable, WorkspaceError
from a3r.core.settings import Settings
from a3r.core.wire import HeartbeatRequest, WorkerRegistration
from a3r.core.workspace import Workspace
from a3r.worker.hub_client import HubClient, fixed
from swarm.testing.chaos.processes import free_port


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zertifikate ü")
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    pair.private_key_pem.write_to_path(folder / "key.pem")
    for number, part in enumerate(pair.cert_chain_pems):
        part.write_to_path(folder / "cert.pem", append=number > 0)
    return folder


@pytest.fixture
def url(workspace: Workspace, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A daemon with a door; its address."""
    port = free_port()
    monkeypatch.setenv("A3R_WORKERS_LISTEN", f"127.0.0.1:{port}")
    monkeypatch.setenv("A3R_WORKERS_TLS_CERT", str(certificates / "cert.pem"))
    monkeypatch.setenv("A3R_WORKERS_TLS_KEY", str(certificates / "key.pem"))
    ensure_daemon(workspace).close()
    return f"https://127.0.0.1:{port}"


def register(client: HubClient, worker: str) -> None:
    with_that = WorkerRegistration(worker_id=worker, host="gpu1", pid=1, slots=2)
    assert client.register(with_that).worker_id == worker


def test_a_worker_comes_in_with_its_own_token_over_tls(
    a3r: Any, url: str, certificates: Path, workspace: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "gpu1.token"
    made = a3r("worker", "token", "gpu1", "--to", str(file), "--json")
    assert made.code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() not in made.out
    client = HubClient(fixed(url, file), ca_file=certificates / "ca.pem")
    register(client, "w-gpu1")
    assert client.heartbeat(HeartbeatRequest(worker_id="w-gpu1", attempts=[])).commands == []
    listed = a3r("worker", "list")
    assert "w-gpu1" in listed.out
    assert a3r("worker", "drain", "w-gpu1").code == 0
    reply = client.heartbeat(HeartbeatRequest(worker_id="w-gpu1", attempts=[]))
    assert reply.wanted == "draining"
    assert a3r("worker", "token", "gpu1", "--revoke").code == 0
    with pytest.raises(AuthFailed):
        register(client, "w-gpu1")


def test_a_certificate_that_is_not_trusted_is_told_with_the_option_that_helps(
    url: str, workspace: Workspace
) -> None:
    client = HubClient(fixed(url, workspace.daemon / "worker.token"))
    with pytest.raises(HubUnreachable, match="certificate verify failed") as refused:
        register(client, "w-gpu1")
    assert "--ca-file" in refused.value.hint
    client.close()


def test_strangers_shared_tokens_and_a_persons_commands_stay_outside(
    url: str, certificates: Path, workspace: Workspace
) -> None:
    shared = HubClient(
        fixed(url, workspace.daemon / "worker.token"), ca_file=certificates / "ca.pem"
    )
    with pytest.raises(AuthFailed, match="other hosts"):
        register(shared, "w-1")
    with pytest.raises(HubUnreachable, match="SSLError"):
        register(HubClient(fixed(url, workspace.daemon / "worker.token")), "w-1")
    trust = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    request = urllib.request.Request(f"{url}/api/v1/campaigns")
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(request, context=trust, timeout=20)
    refused.value.close()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workers_listen": "0.0.0.0:8443"}, "clear text"),
        ({"workers_listen": "8443"}, "no address"),
        ({"workers_listen": "gpu1:99999"}, "no address"),
        ({"workers_listen": "[::1]:1", "workers_tls_cert": "c.pem"}, "and its key"),
        (
            {"workers_listen": "h:1", "workers_tls_cert": "c.pem", "workers_tls_key": "k.pem"},
            "not a certificate",
        ),
    ],
)
def test_a_door_that_would_be_unsafe_or_cannot_work_is_refused(
    values: dict[str, str], said: str
) -> None:
    with pytest.raises(WorkspaceError, match=said) as refused:
        door_of(Settings.model_validate(values))
    assert refused.value.hint


def test_without_the_setting_there_is_no_door_and_loopback_needs_no_certificate() -> None:
    assert door_of(Settings()) is None
    door = door_of(Settings(workers_listen="[::1]:8080"))
    assert door is not None
    assert door.url == "http://[::1]:8080"


async def test_answers_leave_at_once_and_do_not_wait_for_more(workspace: Workspace) -> None:
    accepted: asyncio.Queue[int] = asyncio.Queue()

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        accepted.put_nowait(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()
        await writer.wait_closed()

    for sock in (listen(workspace), Door("127.0.0.1", 0, None, None).listen()):
        async with await asyncio.start_server(note, sock=sock):
            _, writer = await asyncio.open_connection(*sock.getsockname())
            assert await accepted.get() == 1
            writer.close()
            await writer.wait_closed()
