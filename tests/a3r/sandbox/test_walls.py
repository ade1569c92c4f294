"""Real walls around small programs. Where bubblewrap does not work, only the limits are tested, and the rest says why."""

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from a3r.blueprints.model import SandboxSpec
from a3r.core.errors import HostError
from a3r.sandbox.enclosure import Room, enclose
from a3r.sandbox.host import HostWalls, host_walls
from a3r.testing.waiting import retry_until as until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="walls are Linux's"),
    pytest.mark.timeout(60),
]
complete = pytest.mark.skipif(bool(host_walls().missing), reason=f"{host_walls().missing}")
NOTHING = HostWalls(missing=(("files", "no bwrap"), ("network", "no bwrap")))


class House:
    """An attempt's folder with a secret, code, and a place to work."""

    def __init__(self, root: Path):
        self.root = root
        self.code, self.work = root / "code", root / "work"
        self.code.mkdir()
        (self.code / "data.txt").write_text("42")
        (root / "tokens.json").write_text("a secret")

    def start(self, code, spec=None, host=None, **given) -> subprocess.Popen:
        room = Room(
            scratch=self.root / "scratch",
            work=self.work,
            **{"readable": [self.code], "hidden": [self.root], **given},
        )
        argv = [sys.executable, "-c", code] if isinstance(code, str) else code
        made = enclose(argv, self.code, spec or SandboxSpec(), room, host=host)
        self.record = made.record
        pipe = subprocess.PIPE
        env = {"PATH": os.environ["PATH"], **made.env}
        return subprocess.Popen(made.argv, cwd="/", env=env, stdout=pipe, stderr=pipe, text=True)

    def run(self, code, spec=None, **given):
        process = self.start(code, spec, **given)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


@pytest.fixture
def house(tmp_path):
    root = tmp_path / "ein Ordner é"
    root.mkdir()
    return House(root)


@complete
def test_a_command_reads_its_code_writes_its_work_and_sees_nothing_else(house):
    code = f"""
import json, os, pathlib
def can(what, *a):
    try: what(*a)
    except OSError as e: return type(e).__name__
    return "yes"
home = pathlib.Path(os.environ["HOME"])
print(json.dumps({{
  "code": pathlib.Path("data.txt").read_text(),
  "write_code": can(pathlib.Path("data.txt").write_text, "x"),
  "work": can((home / "x").write_text, "x"), "tmp": can((home / "tmp" / "x").write_text, "x"),
  "secret": can(pathlib.Path({str(house.root / "tokens.json")!r}).read_text),
  "shadow": can(pathlib.Path("/etc/shadow").read_text),
  "root": can(pathlib.Path("/x").write_text, "x"),
  "processes": sum(p.isdigit() for p in os.listdir("/proc")),
  "user": {str(Path.home() / ".ssh")!r} in map(str, pathlib.Path({str(Path.home())!r}).glob("*")),
}}))
import swarm.client
"""
    returned, out, err = house.run(code)
    assert returned == 0, err
    assert json.loads(out) == {
        "code": "42",
        "write_code": "OSError",
        "work": "yes",
        "tmp": "yes",
        "secret": "FileNotFoundError",
        "shadow": "FileNotFoundError",
        "root": "OSError",
        "processes": 2,
        "user": False,
    }
    assert (house.work / "x").read_text() == "x"
    assert {"files", "processes", "network"} <= set(house.record.enforced)
    assert house.record.not_enforced == {}


@complete
def test_a_root_behind_walls_changes_nothing_of_the_kernel_and_reads_no_key_of_the_host(house):
    code = """
import json, os, pathlib
found = []
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        path = os.path.join(folder, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
            found.append(path)
        except OSError:
            pass
keys = [str(p) for d in ("/etc/ssl/private", "/etc/pki/tls/private") for p in pathlib.Path(d).rglob("*")]
print(json.dumps([found, keys, os.path.exists("/proc/sys/kernel")]))
"""
    returned, out, err = house.run(code)
    assert returned == 0, err
    assert json.loads(out) == [[], [], True]


@complete
def test_a_fork_bomb_ends_with_its_command(house):
    # It stops by itself far above the limit, should the walls not hold.
    code = """
import os, pathlib, time
count = pathlib.Path(os.environ["A3R_WORK"], "count")
while count.stat().st_size < 400 if count.exists() else True:
    with count.open("ab") as file:
        file.write(b"x")
    os.fork()
time.sleep(60)
"""
    returned, _, err = house.run(code, SandboxSpec(processes=40))
    assert returned == -signal.SIGKILL
    assert "the limit of 40 processes was passed" in err


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"hello {self.headers.get('Connection')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


ASK = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, timeout=10).read().decode())
    except (OSError, urllib.error.URLError) as e: print("no:", getattr(e, "code", ""), e)
"""


@complete
def test_only_the_named_ports_of_this_host_are_reached(house, web):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        urls = [f"http://127.0.0.1:{p}/" for p in (web, port)]
        argv = [sys.executable, "-c", ASK, *urls, urls[0]]
        returned, out, err = house.run(argv, ports=[web])
    assert returned == 0, err
    first, second, third = out.splitlines()
    assert first == third == "hello close"
    assert "refused" in second


@complete
def test_named_hosts_are_reached_through_the_gate_and_others_are_not(house, web):
    argv = [
        sys.executable,
        "-c",
        ASK,
        f"http://localhost:{web}/a?b=1",
        f"http://other.invalid:{web}/",
    ]
    spec = SandboxSpec(hosts=(f"localhost:{web}",))
    returned, out, err = house.run(argv, spec)
    assert returned == 0, err
    assert out.splitlines()[0] == "hello close"
    assert out.splitlines()[1].startswith("no: 403")


@complete
def test_a_tunnel_through_the_gate_carries_both_ways(house, web):
    code = f"""
import os, socket, urllib.parse
gate = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
with socket.create_connection((gate.hostname, gate.port)) as s:
    s.sendall(b"CONNECT localhost:{web} HTTP/1.1\\r\\n\\r\\n")
    assert b" 200 " in s.recv(1000)
    s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    s.shutdown(socket.SHUT_WR)
    data = b""
    while more := s.recv(1000): data += more
print(data.endswith(b"hello None"))
"""
    returned, out, err = house.run(code, SandboxSpec(hosts=("localhost",)))
    assert (returned, out) == (0, "True\n"), err


@complete
def test_the_process_own_proxy_is_reached_and_keeps_its_name_and_password(house, web):
    code = 'import os, urllib.request; print(os.environ["HTTP_PROXY"]); ' + (
        'print(urllib.request.urlopen("http://elsewhere.invalid/", timeout=10).read().decode())'
    )
    returned, out, err = house.run(code, proxy=f"http://me:pass@localhost:{web}")
    assert returned == 0, err
    assert out.splitlines()[0].startswith("http://me:pass@127.0.0.1:")
    assert out.splitlines()[1] == "hello close"


@pytest.mark.parametrize("host", [None, NOTHING], ids=["as here", "without bubblewrap"])
def test_exit_codes_and_signals_pass_through_the_walls(house, host):
    assert house.run("raise SystemExit(7)", host=host)[0] == 7
    assert house.run("import os; os.kill(os.getpid(), 9)", host=host)[0] == -signal.SIGKILL
    assert house.run("import os; os.kill(os.getpid(), 11)", host=host)[0] == -signal.SIGSEGV
    returned, _, err = (
        house.run(["/no/such/program"], host=host) if host else (127, "", "cannot start")
    )
    assert (returned, "cannot start" in err) == (127, True)


@pytest.mark.parametrize("host", [None, NOTHING], ids=["as here", "without bubblewrap"])
def test_a_command_that_is_asked_to_end_may_do_so_in_order(house, host):
    code = """
import pathlib, os, signal, sys, time
def end(*_):
    print("in order", flush=True); sys.exit(3)
signal.signal(signal.SIGTERM, end)
(pathlib.Path(os.environ["A3R_WORK"]) / "ready").touch()
time.sleep(60)
"""
    process = house.start(code, host=host)
    until(lambda: (house.work / "ready").exists())
    process.terminate()
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (3, "in order\n")


@pytest.mark.parametrize("host", [None, NOTHING], ids=["as here", "without bubblewrap"])
def test_too_much_memory_or_too_many_processes_end_the_command(house, host):
    code = """
import subprocess, sys, time
hog = "x = bytearray(60 << 20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-c", hog]) for _ in range(3)]
time.sleep(60)
"""
    spec = SandboxSpec(memory_mb=120)
    returned, _, err = house.run(code, spec, host=host)
    assert returned == -signal.SIGKILL
    assert "a3r sandbox: the memory limit of 120 MiB was passed" in err
    code = "x = bytearray(200 << 20)"  # one process alone does not get that far
    returned, _, err = house.run(code, spec, host=host)
    assert (returned, "MemoryError" in err) == (1, True)
    code = "import subprocess, time\nfor _ in range(9): subprocess.Popen(['sleep', '60'])\ntime.sleep(60)"
    returned, _, err = house.run(code, SandboxSpec(processes=5), host=host)
    assert (returned, "the limit of 5 processes was passed" in err) == (-signal.SIGKILL, True)


def test_a_large_file_and_many_open_ones_are_refused(house):
    spec = SandboxSpec(file_mb=1, open_files=64)
    code = "import os; open(os.environ['HOME'] + '/x', 'wb').write(b'x' * (2 << 20))"
    assert "File too large" in house.run(code, spec)[2]
    code = "f = [open('data.txt') for _ in range(100)]"
    assert "Too many open files" in house.run(code, spec)[2]
    assert {"file_size", "open_files"} <= set(house.record.enforced)


def test_without_bubblewrap_auto_records_what_is_not_enforced_and_required_refuses(house):
    assert house.run("print(1)", host=NOTHING)[:2] == (0, "1\n")
    assert house.record.tool == "limits"
    assert house.record.not_enforced == {"files": "no bwrap", "network": "no bwrap"}
    with pytest.raises(HostError, match="requires a sandbox"):
        house.run("print(1)", SandboxSpec(mode="required"), host=NOTHING)
    assert house.run("print(1)", SandboxSpec(mode="off"))[:2] == (0, "1\n")
    assert house.record.enforced == []


@complete
def test_nothing_goes_on_when_the_outer_process_is_killed(house):
    process = house.start("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    assert process.stdout.readline().strip() == "2"
    process.kill()
    # The pipe ends when the last process that holds it has ended.
    assert process.communicate(timeout=20) == ("", "")
