"""One lane's world: a server with its clients and a tool server, tended like a supervisor would, and ways to wait for it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from swarm.client.client import SwarmClient
from swarm.protocol.errors import SwarmError
from swarm.protocol.messages import Status
from swarm.protocol.states import EngineState
from swarm.server.keys import Tokens
from swarm.testing.chaos.disk import SmallDisk, small_disk
from swarm.testing.chaos.ledger import Claim, answers, read_claims
from swarm.testing.chaos.orders import Orders
from swarm.testing.chaos.processes import Program, free_port
from swarm.testing.chaos.proxy import ChaosProxy, chaos_proxy
from swarm.testing.chaos.world import (
    SECOND,
    World,
    pair_command,
    player_command,
    server_command,
    tool_command,
)

LOOK_S = 0.01
STATUS_S = 0.25
OFFLINE_PATIENCE_S = 1.0
"""An OFFLINE server is started again after this, as its supervisor would."""
STUCK_S = 60.0


class Stuck(AssertionError):
    """Something that must happen did not, within a generous time."""


@dataclass
class Rig:
    """The running world. ``tend`` it often: only then is who died started again."""

    folder: Path
    world: World
    tokens: Tokens
    server: Program
    tool: Program
    tool_port: int
    direct_url: str
    orders: Orders
    shots: Path
    clock_file: Path
    proxy: ChaosProxy | None = None
    disk: SmallDisk | None = None
    companion: Rig | None = None
    """The other server of a pair, without clients of its own."""
    players: list[Program] = field(default_factory=list[Program])
    admin: SwarmClient = field(init=False)
    configured: bool = False
    _offline_since: float | None = None
    _looked: float = 0.0
    _status: Status | None = None

    def __post_init__(self) -> None:
        """Make the supervisor's client, which connects lazily."""
        self.admin = SwarmClient(self.direct_url, self.tokens.admin, "supervisor", timeout_s=2.0)

    def people(self) -> None:
        """Make the clients, once everything that they are told of is known."""
        url = self.proxy.url if self.proxy else self.direct_url
        for number in range(self.world.clients):
            name = f"player-{number}"
            if self.companion is not None:
                command = pair_command(
                    name, self.world, url, self.folder, self.companion.direct_url
                )
            else:
                command = player_command(name, self.world, url, self.folder, self.tool_port)
            log = self.folder / f"{name}.log"
            self.players.append(Program(name, command, log, self.shots))
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
        if self.companion is not None:
            self.companion.tend()
        if self.configured and (self.companion is None or self.companion.configured):
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

    def end_soon(self) -> None:
        """Let training end two steps from now, where it has more to go: what was to be broken has been."""

        def lowered() -> bool:
            with suppress(SwarmError):
                config, step = self.admin.config(), self.admin.status().step
                stop = min(config.stop_at_step, step + 2)
                self.admin.configure(config.model_copy(update={"stop_at_step": stop}))
                return True
            return False

        self.wait(lambda: self.over or lowered(), "a word with the server about its end")
        if self.companion is not None and not self.over:
            self.companion.end_soon()

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
        return bool(self.players) and all(player.ended_well for player in self.players)

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
        other = [self.companion.server] if self.companion is not None else []
        programs = [self.server, *other, *self.players]
        parts += [f"--- {p.name} (alive {p.alive}) ---\n{p.tail()}" for p in programs]
        return "\n".join(parts)

    def end(self) -> None:
        """End every process."""
        self.admin.close()
        for program in (*self.players, self.tool):
            program.signal(signal.SIGKILL)
        for program in (*self.players, self.tool, self.server):
            program.end()
        if self.companion is not None:
            self.companion.end()


@contextmanager
def rig(folder: Path, world: World) -> Generator[Rig]:
    """Make the world in ``folder`` (made if absent) and end all of it with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "state")) if world.limited_disk else None
        port = free_port()
        proxy = None
        if world.proxied:
            proxy = stack.enter_context(chaos_proxy(port, rate=world.trouble_rate, seed=world.seed))
        made = _made(folder, world, port, folder / "shots")
        made.proxy, made.disk = proxy, disk
        if world.paired:
            second = folder / SECOND
            second.mkdir(exist_ok=True)
            # The same folder of shots: whichever of the two servers comes by first is hit.
            made.companion = _made(second, replace(world, clients=0), free_port(), made.shots)
        made.people()
        stack.callback(made.end)
        yield made


def _made(folder: Path, world: World, port: int, shots: Path) -> Rig:
    tokens = Tokens.load(folder / "state")
    (folder / "client.token").write_text(tokens.client, encoding="utf-8")
    (folder / "eval.token").write_text(tokens.eval, encoding="utf-8")
    tool_port, orders = free_port(), folder / "orders"
    serve, tool = server_command(folder, port), tool_command(tool_port, orders)
    return Rig(
        folder=folder,
        world=world,
        tokens=tokens,
        server=Program("server", serve, folder / "server.log", shots),
        tool=Program("tool", tool, folder / "tool.log", shots),
        tool_port=tool_port,
        direct_url=f"http://127.0.0.1:{port}",
        orders=Orders(orders),
        shots=shots,
        clock_file=folder / "clock",
    )
