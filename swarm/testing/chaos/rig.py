"""One lane's world: a server with its clients and a tool server, tended like a supervisor would, and ways to wait for it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarm.client.client import SwarmClient
from swarm.protocol.errors import SwarmError
from swarm.protocol.messages import Status
from swarm.protocol.states import EngineState
from swarm.server.keys import Tokens
from swarm.testing.chaos.disk import SmallDisk, small_disk
from swarm.testing.chaos.ledger import Claim, answers, read_claims
from swarm.testing.chaos.orders import Orders
from swarm.testing.chaos.processes import Program, free_port, python
from swarm.testing.chaos.proxy import ChaosProxy, chaos_proxy

LOOK_S = 0.01
STATUS_S = 0.25
OFFLINE_PATIENCE_S = 1.0
"""An OFFLINE server is started again after this, as its supervisor would."""
STUCK_S = 60.0


class Stuck(AssertionError):
    """Something that must happen did not, within a generous time."""


@dataclass(frozen=True)
class World:
    """What a lane is made of."""

    config: Mapping[str, Any]
    clients: int = 1
    parallel: int = 1
    eval_every: int = 0
    proxied: bool = False
    trouble_rate: float = 0.0
    seed: int = 0
    shared: bool = False
    """The clients take tasks from one queue of the server."""
    limited_disk: bool = False
    """The state folder lies on a disk that can be filled."""
    server: tuple[str, ...] = ("swarm.testing.chaos.server",)
    """Module and leading arguments of the server's command."""
    with_clock: bool = True


@dataclass
class Rig:
    """The running world. ``tend`` it often: only then is who died started again."""

    folder: Path
    world: World
    tokens: Tokens
    server: Program
    tool: Program
    players: list[Program]
    direct_url: str
    orders: Orders
    shots: Path
    clock_file: Path
    proxy: ChaosProxy | None = None
    disk: SmallDisk | None = None
    admin: SwarmClient = field(init=False)
    configured: bool = False
    _offline_since: float | None = None
    _looked: float = 0.0
    _status: Status | None = None

    def __post_init__(self) -> None:
        """Make the supervisor's client, which connects lazily."""
        self.admin = SwarmClient(self.direct_url, self.tokens.admin, "supervisor", timeout_s=2.0)
        if self.disk is not None:
            self.disk.pids = self._server_pids

    def _server_pids(self) -> list[int]:
        return [self.server.pid, *(child.pid for child in self.server.children())]

    @property
    def state_dir(self) -> Path:
        """Of the server."""
        return self.folder / "state"

    def tend(self) -> None:
        """Start whoever died; configure and start a server that waits for it."""
        self.server.keep()
        self.tool.keep()
        if self.configured:
            for player in self.players:
                player.keep()
        if time.monotonic() - self._looked >= STATUS_S:
            self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        self._status = None
        with suppress(SwarmError):
            self._status = self.admin.status()
        status = self._status
        if status is None:
            self._offline_since = None
        elif not self.configured:
            self._prepare(status)
        elif status.state is not EngineState.OFFLINE:
            self._offline_since = None
        elif self._long_offline():
            with suppress(SwarmError):
                self.admin.start()

    def _long_offline(self) -> bool:
        if self._offline_since is None:
            self._offline_since = time.monotonic()
        return time.monotonic() - self._offline_since >= OFFLINE_PATIENCE_S

    def _prepare(self, status: Status) -> None:
        with suppress(SwarmError):
            if status.state is EngineState.OFFLINE:
                self.admin.configure(self.world.config)
                self.admin.start()
            # A checkpoint of step 0: without it the journal would forget the first batches, and the audit needs all.
            self.admin.save_checkpoint()
            self.configured = True

    def status(self) -> Status | None:
        """Return the newest answer of the server; None when it gave none."""
        return self._status

    def complains(self) -> bool:
        """Whether the server says that something is wrong now."""
        status = self._status
        return status is not None and bool(
            status.warnings or (status.state is EngineState.OFFLINE and status.failure)
        )

    def answered(self) -> int:
        """Return how many finishes of all clients were answered so far."""
        return sum(answers(self._ledger(player)) for player in self.players)

    def claims(self) -> dict[str, Claim]:
        """Return what all clients claim."""
        merged: dict[str, Claim] = {}
        for player in self.players:
            merged |= read_claims(self._ledger(player))
        return merged

    def _ledger(self, player: Program) -> Path:
        return self.folder / f"{player.name}.ledger"

    @property
    def over(self) -> bool:
        """Whether every client has seen the end of training."""
        return all(player.ended_well for player in self.players)

    def wait(self, condition: Callable[[], object], what: str, deadline_s: float = STUCK_S) -> None:
        """Tend until ``condition()`` is truthy.

        Raises:
            Stuck: It was still false after ``deadline_s``; the text says what the server says.
        """
        end = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end:
                raise Stuck(f"{what}: not within {deadline_s:.0f} s\n{self.describe()}")
            self.tend()
            time.sleep(LOOK_S)

    def wait_for_progress(self, since: int, what: str) -> None:
        """Tend until more finishes than ``since`` were answered, or training is over."""
        self.wait(lambda: self.answered() > since or self.over, f"an answered finish after {what}")

    def describe(self) -> str:
        """Return the server's status and the ends of the logs."""
        parts = [f"status: {self._status!r}"]
        programs = [self.server, *self.players]
        parts += [f"--- {p.name} (alive {p.alive}) ---\n{p.tail()}" for p in programs]
        return "\n".join(parts)

    def end(self) -> None:
        """End every process."""
        self.admin.close()
        for program in (*self.players, self.tool):
            program.signal(signal.SIGKILL)
        for program in (*self.players, self.tool, self.server):
            program.end()


@contextmanager
def rig(folder: Path, world: World) -> Generator[Rig]:
    """Make the world in ``folder`` (made if absent) and end all of it with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "state")) if world.limited_disk else None
        port, tool_port = free_port(), free_port()
        proxy = None
        if world.proxied:
            proxy = stack.enter_context(chaos_proxy(port, rate=world.trouble_rate, seed=world.seed))
        made = _made(folder, world, port, tool_port, proxy, disk)
        stack.callback(made.end)
        yield made


def _made(
    folder: Path,
    world: World,
    port: int,
    tool_port: int,
    proxy: ChaosProxy | None,
    disk: SmallDisk | None,
) -> Rig:
    tokens = Tokens.load(folder / "state")
    (folder / "client.token").write_text(tokens.client, encoding="utf-8")
    (folder / "eval.token").write_text(tokens.eval, encoding="utf-8")
    direct, shots, orders = f"http://127.0.0.1:{port}", folder / "shots", folder / "orders"
    url = proxy.url if proxy else direct
    names = range(world.clients)
    return Rig(
        folder=folder,
        world=world,
        tokens=tokens,
        server=Program(
            "server", _server_command(folder, world, port), folder / "server.log", shots
        ),
        tool=Program("tool", _tool_command(tool_port, orders), folder / "tool.log", shots),
        players=[_player(folder, world, n, url, tool_port, shots) for n in names],
        direct_url=direct,
        orders=Orders(orders),
        shots=shots,
        clock_file=folder / "clock",
        proxy=proxy,
        disk=disk,
    )


def _server_command(folder: Path, world: World, port: int) -> list[str]:
    arguments: list[object] = ["--state-dir", folder / "state", "--port", port, "--resume"]
    if world.with_clock:
        arguments += ["--clock-file", folder / "clock"]
    return python(world.server[0], *world.server[1:], *arguments)


def _tool_command(port: int, orders: Path) -> list[str]:
    return python("swarm.testing.chaos.tool", port, orders)


def _player(
    folder: Path, world: World, number: int, url: str, tool_port: int, shots: Path
) -> Program:
    name = f"player-{number}"
    arguments: list[object] = ["--url", url, "--token-file", folder / "client.token"]
    arguments += ["--folder", folder, "--client-id", name, "--tool-port", tool_port]
    arguments += ["--parallel", world.parallel]
    if world.shared:
        arguments += ["--shared", "--task-set", "shared"]
    else:  # clients with task sets of their own never compete for one another's seats
        arguments += ["--task-set", f"set-{number}"]
    if number == 0:
        arguments += ["--eval-every", world.eval_every, "--eval-token-file", folder / "eval.token"]
    return Program(
        name, python("swarm.testing.chaos.client", *arguments), folder / f"{name}.log", shots
    )
