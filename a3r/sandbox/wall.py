"""Runs one command behind walls, with the standard library alone: ``python -I -S wall.py SPEC.json``.

Two processes, two modes. *Outside* starts bubblewrap (where the host has it) and carries the connections that are allowed.
*Inside* is the first process behind the walls: it opens the allowed ports there, hands the listening sockets out, sets the
limits, starts the command, watches its memory and number of processes, and says how it ended. The two share one socket, which
the command never gets. Signals for the command, and its way to end, pass through unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import urlsplit

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
MESSAGE_BYTES = 1 << 17
WATCH_S = 0.5
HEAD_BYTES = 1 << 16
CONNECT_S = 20.0
NO_WALL = 126
"""Exit code when the walls could not be built."""
PROC = Path("/proc")
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")

Spec = dict[str, Any]


def given_input(spec: Spec) -> int | None:
    """What the command reads: nothing, or (None) what we were given."""
    return None if spec.get("stdin") else subprocess.DEVNULL


# --- outside -----------------------------------------------------------------------------------------------------


class Outside:
    """Starts the walls, carries connections, passes signals on."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.ended: Spec | None = None
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._servers: list[asyncio.Server] = []
        self._calls: set[asyncio.Task[None]] = set()
        number = theirs.fileno()
        argv = [*spec["wall"], *spec["inside"], "inside", str(number)]
        self._child = subprocess.Popen(argv, stdin=given_input(spec), pass_fds=(number,))
        theirs.close()
        self._ours.send(json.dumps(spec).encode())

    async def run(self) -> int:
        """Until the command has ended; returns the exit code of what was started."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ours, self._hear)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._pass_on, number)
        code = await asyncio.to_thread(self._child.wait)
        self._hear()
        for server in self._servers:
            server.close()
        return code

    def _pass_on(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._ours.send(json.dumps({"signal": int(number)}).encode())

    def _hear(self) -> None:
        """Take what inside says: an opened port with its socket, or how the command ended."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._ours, MESSAGE_BYTES, 4)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                asyncio.get_running_loop().remove_reader(self._ours)
                return
            told = json.loads(data)
            if "ended" in told:
                self.ended = told["ended"]
            for number in fds:
                self._serve(socket.socket(fileno=number), self.spec["relays"][told["relay"]])

    def _serve(self, listening: socket.socket, relay: Spec) -> None:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await carry(reader, writer, relay)

        async def begin() -> None:
            self._servers.append(await asyncio.start_server(take, sock=listening))

        task = asyncio.get_running_loop().create_task(begin())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: Spec) -> None:
    """One connection from inside to ``relay["to"]``, or to the named host that it asks for as of a proxy."""
    try:
        if relay.get("to"):
            host, port, first = relay["to"][0], int(relay["to"][1]), b""
        else:
            host, port, first = await asked_host(reader, relay["hosts"])
        opening = asyncio.open_connection(host, port)
        far_reader, far_writer = await asyncio.wait_for(opening, CONNECT_S)
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        if not relay.get("to"):
            writer.write(refusal(error))
        writer.close()
        return
    if first:
        far_writer.write(first)
    elif not relay.get("to"):
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
    for end in (writer, far_writer):
        end.close()


async def asked_host(reader: asyncio.StreamReader, allowed: list[str]) -> tuple[str, int, bytes]:
    """Host, port, and what is to be sent there first; ValueError for a host that is not allowed."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), CONNECT_S)
    if len(head) > HEAD_BYTES:
        raise ValueError("too long")
    line, _, rest = head.partition(b"\r\n")
    method, target, version = line.decode("latin-1").split(" ", 2)
    url = urlsplit(f"//{target}" if method == "CONNECT" else target)
    host = (url.hostname or "").lower()
    port = url.port or (443 if method == "CONNECT" else 80)
    if host not in allowed and f"{host}:{port}" not in allowed:
        raise PermissionError(f"{host}:{port} is not among the sandbox's hosts")
    if method == "CONNECT":
        return host, port, b""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [
        field
        for field in rest.split(b"\r\n")
        if not field.lower().startswith((b"proxy-", b"connection:"))
    ]
    first = f"{method} {path} {version}\r\nConnection: close\r\n".encode("latin-1")
    return host, port, first + b"\r\n".join(kept)


def refusal(error: BaseException) -> bytes:
    """The answer of a proxy that does not let somebody through."""
    code = "403 Forbidden" if isinstance(error, PermissionError) else "502 Bad Gateway"
    body = f"a3r sandbox: {error or type(error).__name__}\n".encode()
    return f"HTTP/1.1 {code}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the one side, then tell the other that there is no more."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()


def outside(path: Path) -> None:
    """Run the command of a spec and end as it ended."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    try:
        wall = Outside(spec)
    except OSError as error:
        fail(f"the walls cannot be built: {error}")
    code = asyncio.run(wall.run())
    if wall.ended is None:
        fail(f"the walls fell before the command ended (exit code {code})")
    if wall.ended["signal"]:
        number = int(wall.ended["signal"])
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), number)
    os._exit(int(wall.ended["code"] or 0))


def fail(why: str) -> NoReturn:
    """Say why and leave with ``NO_WALL``."""
    sys.stderr.write(f"a3r sandbox: {why}\n")
    sys.stderr.flush()
    os._exit(NO_WALL)


# --- inside ------------------------------------------------------------------------------------------------------


class Inside:
    """The first process behind the walls."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.spec: Spec = json.loads(control.recv(MESSAGE_BYTES))
        self.env = dict(os.environ)
        self._status: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._wake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

    def run(self) -> Spec:
        """Start the command and watch it to its end; how it ended."""
        for number, relay in enumerate(self.spec["relays"]):
            self._open(number, relay)
        try:
            self._child = subprocess.Popen(
                self.spec["argv"],
                cwd=self.spec["cwd"],
                env=self.env,
                stdin=given_input(self.spec),
                preexec_fn=self._limit,
            )
        except (OSError, subprocess.SubprocessError) as error:
            sys.stderr.write(f"a3r sandbox: cannot start {self.spec['argv'][0]!r}: {error}\n")
            return {"code": 127, "signal": None}
        watch = select.poll()
        watch.register(self.control, select.POLLIN | select.POLLHUP)
        watch.register(self._wake, select.POLLIN)
        self._reap()
        while self._status is None:
            for fd, _ in watch.poll(int(WATCH_S * 1000)):
                self._hear() if fd == self.control.fileno() else self._clear()
            self._reap()
            self._check()
        code = os.waitstatus_to_exitcode(self._status)
        return {"code": max(code, 0), "signal": -code if code < 0 else None}

    def _open(self, number: int, relay: Spec) -> None:
        """Listen for a relay behind the walls; outside accepts."""
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", int(relay["port"])))
            listening.listen(512)
            port = listening.getsockname()[1]
            message = json.dumps({"relay": number}).encode()
            socket.send_fds(self.control, [message], [listening.fileno()])
        if relay.get("proxy"):
            url = str(relay["proxy"]).replace("{port}", str(port))
            self.env |= dict.fromkeys(PROXY_NAMES, url)

    def _limit(self) -> None:
        """In the command's process, before it becomes the command."""
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, value in self.spec["limits"].items():
            which = getattr(resource, f"RLIMIT_{name}")
            _, most = resource.getrlimit(which)
            limit = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(which, (limit, limit))

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._send(number)

    def _send(self, number: int) -> None:
        if self._child is not None and self._status is None:
            with contextlib.suppress(OSError):
                os.kill(self._child.pid, number)

    def _hear(self) -> None:
        data = self.control.recv(MESSAGE_BYTES)
        if not data:  # nobody outside any more
            self._end_all()
            os._exit(NO_WALL)
        self._send(int(json.loads(data)["signal"]))

    def _clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if self._child is not None and pid == self._child.pid:
                    self._status = status
                    self._child.returncode = os.waitstatus_to_exitcode(status)

    def _check(self) -> None:
        """End everything when it takes more than it may in all."""
        memory_mb, most = self.spec.get("memory_mb"), int(self.spec["processes"])
        found = dict(below(os.getpid()))
        used_mb = sum(found.values()) >> 20
        why = ""
        if memory_mb and used_mb > memory_mb:
            why = f"the memory limit of {memory_mb} MiB was passed ({used_mb} MiB)"
        elif len(found) > most:
            why = f"the limit of {most} processes was passed ({len(found)})"
        if why:
            sys.stderr.write(f"a3r sandbox: {why}; the command was killed\n")
            sys.stderr.flush()
            self._end_all()

    def _end_all(self) -> None:
        for pid, _ in below(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def below(ancestor: int) -> Iterator[tuple[int, int]]:
    """(pid, bytes of memory of its own) of each descendant."""
    parents: dict[int, int] = {}
    for entry in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_bytes().rpartition(b")")[2].split()[1])
    for pid in parents:
        above = parents.get(pid)
        while above and above != ancestor:
            above = parents.get(above)
        if above == ancestor:
            yield pid, own_memory(pid)


def own_memory(pid: int) -> int:
    """Bytes that the process holds and shares with nobody's file; 0 when it is gone."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (PROC / str(pid) / "status").read_bytes().splitlines():
            if line.startswith((b"RssAnon:", b"RssShmem:")):
                total += int(line.split()[1]) << 10
    return total


def inside(number: int) -> None:
    """Serve the socket ``number`` that outside left open."""
    control = socket.socket(fileno=number)
    control.set_inheritable(False)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # the command shall not look into us
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ended = Inside(control).run()
    control.send(json.dumps({"ended": ended}).encode())
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        inside(int(sys.argv[2]))
    outside(Path(sys.argv[1]))
