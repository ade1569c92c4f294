"""What travels and who may see it: TLS, binds without it, tokens on a terminal, the list of this machine's servers."""

import asyncio
import json
import os
import pty
import select
import socket
import ssl
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import trustme

from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.protocol.errors import ConfigError, ServerUnreachable
from swarm.server.exposure import SetupError, check_bind, check_tls, is_loopback
from swarm.server.registry import LocalServer, birth_of, enter, listed
from swarm.testing.server_process import server_process, start_server

SWARM = [sys.executable, "-m", "swarm.cli"]


def command(*args, **environ):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SWARM_")}
    return subprocess.run(
        [*SWARM, *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean, **environ},
    )


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Files of a certificate for this machine's loopback, its key, and the authority that signed it."""
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    made.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in made.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    return folder


# -- binds and certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("", False),
        ("10.0.0.1", False),
        ("gpu7.example.org", False),
    ],
)
def test_only_loopback_may_do_without_tls(host, inside):
    assert is_loopback(host) is inside
    assert check_bind(host, tls=True, insecure_http=False) is False
    if inside:
        assert check_bind(host, tls=False, insecure_http=False) is False
        return
    with pytest.raises(SetupError, match="clear text") as refused:
        check_bind(host, tls=False, insecure_http=False)
    assert "--insecure-http" in refused.value.hint
    assert check_bind(host, tls=False, insecure_http=True) is True


def test_certificates_are_checked_before_anything_listens(pem, tmp_path):
    cert, key, other = pem / "cert.pem", pem / "key.pem", tmp_path / "other.pem"
    assert check_tls(None, None) is False
    assert check_tls(cert, key) is True
    trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(str(other))
    for pair in ((cert, None), (None, key), (cert, tmp_path / "no"), (cert, other), (key, key)):
        with pytest.raises(SetupError):
            check_tls(*pair)


def test_a_public_bind_without_tls_is_refused_and_a_wrong_certificate_too(pem, tmp_path):
    state = ("--port", "0", "--state-dir", str(tmp_path / "s"))
    plain = command("serve", "--host", "0.0.0.0", *state)
    assert plain.returncode == 2
    assert "clear text" in plain.stderr
    half = command("serve", *state, "--tls-cert", str(pem / "cert.pem"))
    assert half.returncode == 2
    assert "--tls-key" in half.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.timeout(90)
def test_over_tls_everything_works_and_plain_http_does_not(pem, tmp_path, monkeypatch):
    tls = ("--tls-cert", str(pem / "cert.pem"), "--tls-key", str(pem / "key.pem"))
    with server_process(tmp_path / "state", "--host", "0.0.0.0", *tls) as server:
        assert server.url.startswith("https://127.0.0.1:")
        ready = json.loads((tmp_path / "state" / "ready.json").read_text())
        with (
            SwarmClient(server.url, server.token()) as client,
            pytest.raises(ServerUnreachable, match="not trusted") as refused,
        ):
            client.status()
        assert "SSL_CERT_FILE" in refused.value.hint
        with pytest.raises(ServerUnreachable, match="not trusted"):
            asyncio.run(step_of(server))
        monkeypatch.setenv("SSL_CERT_FILE", str(pem / "ca.pem"))
        with SwarmClient(server.url, server.token()) as client:
            client.configure({"engine": "toy", "batch": {"tasks": 1, "repeat": 1}})
            assert client.start().server_id == ready["server_id"]
            with client.episode("t") as episode:
                assert episode.grant.base_url == f"{server.url}/v1"
                episode.chat([{"role": "user", "content": "Compute 1+2."}])
                assert episode.finish(1.0).accepted
        # In a process of its own: aiohttp reads the variable once, when it is imported.
        told = command("status", "--json", "--server", server.url, SWARM_TOKEN=server.token())
        assert json.loads(told.stdout)["step"] == 1
        code = ASYNC_STEP.format(url=server.url, token=server.token())
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 1
        context = ssl.create_default_context(cafile=str(pem / "ca.pem"))
        with urllib.request.urlopen(f"{server.url}/health", context=context) as answer:
            assert answer.status == 200
        with pytest.raises(OSError, match=r"\S"):
            urllib.request.urlopen(server.url.replace("https", "http") + "/health", timeout=5)
        log = (tmp_path / "state" / "server.log").read_text()
        assert "unencrypted" not in log


ASYNC_STEP = """
import asyncio, sys
from swarm.client import AsyncSwarmClient
async def step():
    async with AsyncSwarmClient({url!r}, {token!r}) as client:
        return (await client.wait_step(0, timeout_s=10)).step
sys.exit(asyncio.run(step()))
"""


async def step_of(server):
    async with AsyncSwarmClient(server.url, server.token()) as client:
        return (await client.wait_step(0, timeout_s=10)).step


@pytest.mark.timeout(60)
def test_insecure_http_is_possible_on_request_and_warned_of(tmp_path):
    with server_process(tmp_path / "s", "--host", "0.0.0.0", "--insecure-http") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert "travel unencrypted" in (tmp_path / "s" / "server.log").read_text()


# -- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_tokens_are_shown_on_a_terminal_and_nowhere_else(tmp_path):
    with server_process(tmp_path / "piped") as server:
        log = (tmp_path / "piped" / "server.log").read_text()
        assert not any(server.token(name) in log for name in ("admin", "client", "eval"))
    ours, theirs = pty.openpty()
    argv = [*SWARM, "serve", "--port", "0", "--state-dir", str(tmp_path / "seen")]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "xdg")}
    with os.fdopen(theirs, "wb") as terminal:
        process = subprocess.Popen(argv, stderr=terminal, env=environ)
    seen = b""
    try:
        while b"\n" not in seen.partition(b"  eval")[2]:
            assert select.select([ours], [], [], 40)[0], seen
            seen += os.read(ours, 65536)
        tokens = json.loads((tmp_path / "seen" / "tokens.json").read_text())
        assert all(tokens[name].encode() in seen for name in ("admin", "client", "eval"))
        assert tokens["signing"].encode() not in seen
    finally:
        process.terminate()
        process.wait(20)
        os.close(ours)


# -- the servers of this machine ----------------------------------------------------------------------------


def a_server(pid=None, **values):
    pid = pid or os.getpid()
    body = {
        "server_id": "0123456789abcdef",
        "url": "http://127.0.0.1:1",
        "pid": pid,
        "born": birth_of(pid),
        "state_dir": "/s",
        "version": "0.1.0",
    }
    return LocalServer(**{**body, **values})


def test_a_record_is_private_and_gone_with_its_process(tmp_path):
    folder = tmp_path / "servers"
    assert listed(folder) == []
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = enter(folder, a_server())
    theirs = enter(folder, a_server(child.pid, state_dir="/a"))
    (folder / "junk.json").write_text("{")
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [s.state_dir for s in listed(folder)] == ["/a", "/s"]
    child.communicate(b"\n")
    assert [s.state_dir for s in listed(folder)] == ["/s"]
    assert not theirs.exists()
    assert (folder / "junk.json").exists()


def test_a_pid_that_was_given_to_another_process_is_not_the_server(tmp_path):
    enter(tmp_path, a_server(born="another-boot/12"))
    assert listed(tmp_path) == []
    enter(tmp_path, a_server(born=""))
    assert listed(tmp_path) == []


def test_a_birth_is_of_one_process():
    assert birth_of(os.getpid()) == birth_of(os.getpid()) != ""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert birth_of(child.pid) == ""


@pytest.mark.timeout(90)
def test_list_shows_the_living_servers_of_this_machine(tmp_path):
    state = tmp_path / "one"
    server = start_server(state)
    environ = {"XDG_STATE_HOME": str(state / "xdg")}
    try:
        (row,) = json.loads(command("list", "--json", **environ).stdout)
        assert (row["state"], row["url"], row["model"]) == ("OFFLINE", server.url, None)
        assert (row["waiting"], row["where"]) == (True, str(state))
        assert row["server_id"] == json.loads((state / "ready.json").read_text())["server_id"]
        with SwarmClient(server.url, server.token()) as client:
            client.configure({"engine": "toy"})
            client.start()
        table = command("list", **environ).stdout
        assert table.splitlines()[0].split() == ["SERVER_ID", "STATE", "URL", "MODEL", "WHERE"]
        assert "ROLLING" in table
        assert command("list", "--waiting", **environ).stdout == "No servers.\n"
    finally:
        server.kill()
    assert json.loads(command("list", "--json", **environ).stdout) == []
    with server_process(state, "--resume"):
        assert len(json.loads(command("list", "--json", **environ).stdout)) == 1
    assert list((state / "xdg" / "swarm" / "servers").iterdir()) == []


def test_a_folder_that_cannot_be_written_does_not_keep_the_server_from_running(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "xdg").write_text("not a folder")
    with server_process(tmp_path / "s"):
        assert "will not show" in (tmp_path / "s" / "server.log").read_text()


def test_the_same_state_folder_is_the_same_server_for_good(tmp_path):
    from swarm.server.keys import Tokens

    tokens = Tokens.load(tmp_path / "a")
    assert Tokens.load(tmp_path / "a").server_id == tokens.server_id
    assert Tokens.load(tmp_path / "b").server_id != tokens.server_id
    assert len(tokens.server_id) == 16
    assert tokens.server_id not in tokens.signing


# -- a hub that lists servers -------------------------------------------------------------------------------


def test_what_cannot_be_announced_is_told_before_anything_starts(tmp_path):
    state = ("--port", "0", "--state-dir", str(tmp_path / "s"))
    token = tmp_path / "token"
    cases = [
        (("--announce", "http://127.0.0.1:1"), "--announce-token-file"),
        (("--announce", "ftp://hub", "--announce-token-file", str(token)), "not a URL"),
        (
            ("--announce", "http://hub.example.org", "--announce-token-file", str(token)),
            "unencrypted",
        ),
        (
            ("--announce", "http://127.0.0.1:1", "--announce-token-file", str(token)),
            "cannot be read",
        ),
        (
            ("--announce", "http://127.0.0.1:1", "--announce-url", "gpu7"),
            "not a URL",
        ),
    ]
    for options, words in cases:
        answer = command("serve", *state, *options)
        assert answer.returncode == 2
        assert words in answer.stderr
        assert not (tmp_path / "s").exists()
    token.write_text("two words")
    from swarm.server.announce import read_hub_token

    with pytest.raises(ConfigError, match="one token"):
        read_hub_token(token)


@pytest.mark.timeout(60)
def test_a_hub_that_is_away_does_not_keep_the_server_from_running(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret-of-the-hub\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    options = ("--announce", f"http://127.0.0.1:{port}", "--announce-token-file", str(token))
    with server_process(tmp_path / "s", *options) as server:
        with SwarmClient(server.url, server.token()) as client:
            client.configure({"engine": "toy"})
            assert client.start().server_id
        log = Path(tmp_path / "s" / "server.log").read_text()
        assert log.count("Not announced to the hub") == 1
        assert "secret-of-the-hub" not in log
        assert "Traceback" not in log


@pytest.mark.parametrize("url", ["https://me:s3cret@hub.example.org", "http://s3cret@127.0.0.1:1"])
def test_an_address_with_a_secret_in_it_is_refused_without_repeating_it(url):
    from swarm.server.announce import check_address

    with pytest.raises(ConfigError, match="password") as refused:
        check_address(url)
    assert "s3cret" not in str(refused.value)
