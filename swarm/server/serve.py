"""Boot of the server process: state directory, lock, tokens, socket, service, HTTP, ready record, shutdown.

Knows no engine: the caller passes the factory. Everything that can be wrong before the server listens is a ``SetupError``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import uvicorn
import uvloop

from swarm.protocol.errors import SwarmError
from swarm.server.announce import check_address, check_hub, read_hub_token
from swarm.server.exposure import SetupError, check_bind, check_tls
from swarm.server.keys import Tokens
from swarm.server.notices import Notices, Place
from swarm.server.ports import Engine
from swarm.server.redaction import Redactor, redact_logs
from swarm.server.routes.app import create_app
from swarm.server.serve_options import ServeOptions
from swarm.server.service.clock import Clock
from swarm.server.service.service import SwarmService

logger = logging.getLogger(__name__)

LOCK_FILE = "server.lock"
GRACE_S = 2
"""Seconds that open answers get at shutdown before they are cut."""
CLOSE_S = 15
"""Seconds that the service and its engine get to end after that."""
EXIT_STUCK = 1
HUB_TOKEN = "HUB_TOKEN"  # noqa: S105 - what the hub's token is called, not the token
KEEP_ALIVE_S = 120
"""Idle connections are kept this long: longer than any client's pool, so that no client writes into a closing one."""
COLLECT_AFTER = (5_000, 5, 200)
"""Thresholds of Python's collector of cycles. By default it takes a fifth of the time of a server that keeps thousands of
conversations, to find nothing: what a call leaves behind is freed by its count."""


def serve(
    options: ServeOptions, engine_factory: Callable[[str], Engine], clock: Clock | None = None
) -> None:
    """Run the server until SIGTERM or SIGINT; ``clock`` is the machine's unless a proof brings its own.

    Raises:
        SetupError: The state directory is not writable or in use by another server, the port is taken, the certificate
            cannot be used, or tokens would travel unencrypted.
        SwarmError: The configuration was refused.
    """
    tls = check_tls(options.tls_cert, options.tls_key)
    exposed = check_bind(options.host, tls=tls, insecure_http=options.insecure_http)
    hub_token = _hub_token(options)
    state_dir = _writable(options.state_dir)
    _prepare_ready_file(options.ready_file)
    with locked(state_dir), listening(options.host, options.port) as sock:
        if exposed:
            logger.warning(
                "Listening on %s: tokens and keys travel unencrypted. Put TLS or a tunnel in front.",
                options.host,
            )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            place = Place(options, state_dir, sock, hub_token)
            runner.run(_run(place, engine_factory, clock))


def _hub_token(options: ServeOptions) -> str:
    """Read the token for announcing, before anything starts; empty without a hub."""
    if options.announce is None:
        return ""
    check_hub(options.announce, insecure=options.insecure_http)
    if options.announce_url is not None:
        check_address(options.announce_url)
    return read_hub_token(options.announce_token_file)


def _writable(folder: Path) -> Path:
    """Make ``folder`` and prove that a file can be written in it; returns it absolute."""
    folder = folder.expanduser().absolute()
    probe = folder / f".probe.{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            probe.unlink()
        raise SetupError(
            f"The state directory {str(folder)!r} cannot be written: {error.strerror}.",
            hint="Choose a writable --state-dir on a disk with free space.",
        ) from error
    return folder


def _prepare_ready_file(path: Path | None) -> None:
    """Remove a former server's record, which would send a waiter to a dead port."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SetupError(
            f"The ready file {str(path)!r} cannot be written: {error.strerror}.",
            hint="Choose another --ready-file.",
        ) from error


@contextlib.contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold the state directory's lock; the kernel frees it however the process ends.

    Raises:
        SetupError: Another process holds it.
    """
    with (state_dir / LOCK_FILE).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SetupError(
                f"The state directory {str(state_dir)!r} is in use by another server ({_holder(file)}).",
                hint="Stop that server, or give this one its own --state-dir.",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return f"pid {file.read(16).strip() or 'unknown'}"


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bind ``host:port`` (0 = any free port) and yield the socket, closed at the end.

    Raises:
        SetupError: The port is taken or the address is not this machine's.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
    except OSError as error:
        raise SetupError(
            f"{host!r} is not an address: {error.strerror}.", hint="Use 127.0.0.1 or 0.0.0.0."
        ) from error
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
            # Listen at once: until then another process could bind the same port with SO_REUSEADDR.
            sock.listen(2048)
        except OSError as error:
            raise SetupError(
                f"Cannot listen on {host}:{port}: {error.strerror}.",
                hint="Choose another --port, or --port 0 for any free one.",
            ) from error
        sock.setblocking(False)
        yield sock


async def _run(place: Place, engine_factory: Callable[[str], Engine], clock: Clock | None) -> None:
    options, state_dir = place.options, place.state_dir
    tokens = Tokens.load(state_dir)
    redactor = Redactor.of_server(tokens, {**options.secrets, HUB_TOKEN: place.hub_token})
    redact_logs(redactor)
    service = await SwarmService.open(
        state_dir=state_dir,
        engine_factory=engine_factory,
        tokens=tokens,
        clock=clock,
        resume=options.resume,
        redactor=redactor,
    )
    boot: asyncio.Task[None] | None = None
    notices = Notices(place, service, tokens)
    try:
        # A restart with the file that the run began with must not undo what was changed since.
        known = options.resume and service.began_with(options.config)
        if options.config is not None and not known:
            await service.configure(options.config, who="serve")
        server = _HttpServer(_http_config(service, tokens, options), notices.post)
        server.stop_on_signals()
        _collect_seldom()
        if options.start or options.resume:
            boot = asyncio.create_task(_start(service))
        await server.serve(sockets=[place.sock])
    finally:
        await notices.withdraw()
        if boot is not None:
            boot.cancel()
        await _close_or_exit(service)


def _collect_seldom() -> None:
    """Take what was imported out of the collector's sight, and let it look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


async def _close_or_exit(service: SwarmService) -> None:
    """Close the service; when that hangs, end the process: a supervisor waits, and the engine ends with its socket."""
    closing = asyncio.create_task(service.close())
    done, _ = await asyncio.wait((closing,), timeout=CLOSE_S)
    if not done:
        logger.error("The service did not close within %d s; the process ends without it", CLOSE_S)
        logging.shutdown()
        os._exit(EXIT_STUCK)
    await closing


async def _start(service: SwarmService) -> None:
    """Boot the engine; a failure leaves the server OFFLINE with the reason in its status."""
    try:
        await service.start()
    except SwarmError as error:
        logger.error("The engine did not start: %s", error)  # noqa: TRY400 - an expected failure, told in words
    except Exception:
        logger.exception("The engine did not start")


def _http_config(service: SwarmService, tokens: Tokens, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(service, tokens, trust_proxy=options.trust_proxy),
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


class _HttpServer(uvicorn.Server):
    """uvicorn that tells when it listens and whose signals end the process in order, with exit code 0."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    def stop_on_signals(self) -> None:
        """First SIGTERM or SIGINT: shut down in order. Second: at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: uvicorn would raise them again after the shutdown."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, then announce."""
        await super().startup(sockets)
        self._on_listening()
