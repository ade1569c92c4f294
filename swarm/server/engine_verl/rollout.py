"""Sampling through the rollout replicas, from a thread with an event loop of its own: requests in, chunks into a queue.

The child's loop calls ``submit``, ``abort`` and ``collect``; nothing of it blocks on Ray. A replica that dies is left out, its
requests go to the others (or wait, when there is none) until it is ``revived``.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from swarm.protocol.errors import ConfigError
from swarm.server.constraints import Grammars
from swarm.server.engine_verl.balance import Balance
from swarm.server.engine_verl.resend import NotRepeated, Piece, news_of, rest_of
from swarm.server.engine_verl.sampling import REQUESTS
from swarm.server.ports import Chunk, GenerateRequest

logger = logging.getLogger(__name__)

WAIT_S = 0.005
"""How long ``collect`` waits for the first chunk."""
CLOSE_S = 10.0
NOTICE_S = 20.0
"""A call to a dead server may fail before who watches the server hears of it."""
SENDS = 4
"""How often one request is sent to replicas that die under it."""
DEATHS = frozenset({"RayActorError", "EngineDeadError"})
"""What Ray says of a dead actor, and vLLM's server of its dead engine; by name, for neither is imported here."""
REFUSALS = frozenset(
    {"VLLMClientError", "VLLMValidationError", "UnreadablePicture", "PromptChanged"}
)
"""What vLLM and our servers say to a request that they do not take, whatever becomes of it: by name too."""
ResultT = TypeVar("ResultT")


class Rollout:
    """Open requests of one engine. ``servers`` are handles of ``SwarmServer`` actors, one a replica.

    ``on_death`` is called with the number of a replica that died, from the loop's thread. ``versioned``: chunks tell the policy
    version of each token. ``kind`` is the servers': ``vllm`` or ``sglang``.
    """

    def __init__(
        self,
        servers: list[Any],
        grammars: Grammars,
        *,
        on_death: Callable[[int], None] = lambda _replica: None,
        versioned: bool = False,
        kind: str = "vllm",
    ) -> None:
        self._servers = dict(enumerate(servers))
        """Those that live; changed in the loop's thread only."""
        self._grammars = grammars
        self._on_death = on_death
        self._versioned = versioned
        self._request = REQUESTS[kind]
        self._balance = Balance(len(servers))
        self._open: dict[str, int] = {}
        """Request -> replica; changed in the loop's thread only."""
        self._sampling: set[str] = set()
        """Requests without an end yet; changed in the loop's thread only."""
        self._aborted: set[str] = set()
        """Those of them that nobody wants any more."""
        self._waiting: set[str] = set()
        """Requests that the child has not seen the end of; changed by the child's thread only."""
        self._chunks: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        self.dead: dict[int, str] = {}
        """Replica -> why it died, until it is revived."""
        self.lost = ""
        """Not empty: sampling cannot go on, and why. Open requests ended as aborted."""
        self._some_dead = threading.Event()
        self._changed = asyncio.Condition()
        self._watches: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollout", daemon=True)
        self._thread.start()
        for replica, server in enumerate(servers):
            self._loop.call_soon_threadsafe(self._watch, replica, server)

    @property
    def load(self) -> int:
        """Requests that are open."""
        return len(self._waiting)

    def homes(self) -> dict[str, int]:
        """Return open request -> replica, of those that were sent."""
        return dict(self._open)

    def submit(self, request: GenerateRequest) -> None:
        """Send a request to the replica of its episode."""
        self._waiting.add(request.request_id)
        self._run(self._sample(request))

    def abort(self, request_id: str) -> None:
        """Stop a request in its replica's scheduler; its last chunk comes through ``collect``. Unknown ids are ignored."""
        if request_id in self._waiting:
            self._run(self._abort(request_id))

    def collect(self) -> list[Chunk]:
        """Return the chunks that came, waiting a moment for the first."""
        chunks: list[Chunk] = []
        try:
            chunks.append(self._chunks.get(timeout=WAIT_S))
            while True:
                chunks.append(self._chunks.get_nowait())
        except queue.Empty:
            pass
        self._waiting -= {chunk.request_id for chunk in chunks if chunk.finish is not None}
        return chunks

    def await_death(self, error: BaseException) -> bool:
        """Whether a replica is dead, once ``error`` came of one of its servers; waits a moment for the word of it."""
        if means_death(error):
            self._some_dead.wait(NOTICE_S)
        return bool(self.dead)

    def revive(self, replica: int, server: Any) -> None:
        """A replica takes requests again, through a new server."""

        async def gain() -> None:
            self._servers[replica] = server
            self.dead.pop(replica, None)
            if not self.dead:
                self._some_dead.clear()
            self._balance.gain(replica)
            self._watch(replica, server)
            async with self._changed:
                self._changed.notify_all()

        self._run(gain()).result()

    def give_up(self, why: str) -> None:
        """No replica comes any more: ``lost`` says why, and what waits for one ends."""

        async def lose_all() -> None:
            self.lost = self.lost or why
            async with self._changed:
                self._changed.notify_all()

        self._run(lose_all()).result()

    def close(self) -> None:
        """End the thread; open requests are forgotten. Safe to call twice."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        if self._loop.is_closed():
            return
        self._run(cancel()).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the loop's thread -------------------------------------------------------------------------------

    async def _sample(self, request: GenerateRequest) -> None:
        name, told = request.request_id, list[int]()
        finished = False
        self._sampling.add(name)
        for _ in range(SENDS):
            replica = await self._home(request)
            if replica is None:
                break
            if finished := await self._tried(replica, request, told):
                break
        else:
            # The last replica may have lived, and the caller have left.
            if name not in self._aborted:
                self.lost = self.lost or f"{SENDS} rollout replicas died in a row under one request"
        if not finished:
            self._chunks.put(Chunk(name, [], [], "abort"))
        self._sampling.discard(name)
        self._aborted.discard(name)

    async def _home(self, request: GenerateRequest) -> int | None:
        """Wait until a replica lives and count the request to it; None when nobody wants it any more."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._servers or self.lost or request.request_id in self._aborted
            )
        if self.lost or request.request_id in self._aborted:
            return None
        replica = self._open[request.request_id] = self._balance.take(request.affinity)
        return replica

    async def _tried(self, replica: int, request: GenerateRequest, told: list[int]) -> bool:
        """Sample on one replica; False when it died, or when sampling cannot go on."""
        server = self._servers[replica]
        try:
            await self._from(server, request, told)
            return True
        except (NotRepeated, ConfigError) as error:
            logger.warning("Request %s ends here: %s", request.request_id, error)
            self._aborted.add(request.request_id)
        except Exception as error:
            if means_death(error):
                self._lose(replica, server, _said(error))
            elif _is_one_of(REFUSALS, error):
                logger.warning("Request %s ends here: %s", request.request_id, _said(error))
                self._aborted.add(request.request_id)
            else:
                logger.exception("A rollout replica failed.")
                self.lost = f"rollout replica {replica} failed: {_said(error)}"
        finally:
            self._open.pop(request.request_id, None)
            self._balance.give(replica)
        return False

    async def _from(self, server: Any, request: GenerateRequest, told: list[int]) -> None:
        sent, known = rest_of(request, told)
        if not request.stream:
            self._put(request.request_id, await server.sample.remote(self._as_sent(sent)))
            return
        at = 0
        pieces = server.stream.options(num_returns="streaming").remote(self._as_sent(sent))
        async for reference in pieces:
            piece = await reference
            news = news_of(piece, told, at=at, known=known)
            at += len(piece["ids"])
            told += news["ids"]
            if news["ids"] or news["finish"]:
                self._put(request.request_id, news)

    def _as_sent(self, request: GenerateRequest) -> dict[str, Any]:
        grammar = request.params.grammar
        lark = self._grammars.lark(grammar) if grammar else ""
        return self._request(request, lark=lark, vocabulary=self._grammars.vocab_size)

    async def _abort(self, name: str) -> None:
        if name in self._aborted or name not in self._sampling:
            return
        self._aborted.add(name)
        server = self._servers.get(self._open.get(name, -1))
        if server is None:  # it waits for a replica
            async with self._changed:
                self._changed.notify_all()
            return
        try:
            await server.stop.remote(name)
        except Exception as error:
            if not means_death(error):
                raise

    def _put(self, name: str, piece: Piece) -> None:
        self._chunks.put(
            Chunk(
                name,
                piece["ids"],
                piece["logprobs"],
                piece["finish"],
                piece["top"],
                versions=piece["versions"] if self._versioned else [],
                stop_reason=piece["stop_reason"],
            )
        )

    def _watch(self, replica: int, server: Any) -> None:
        async def until_it_ends() -> None:
            try:
                why = await server.ended.remote()
            except Exception as error:  # noqa: BLE001 - however it ended, it has ended
                why = str(error)
            self._lose(replica, server, why)

        task = self._loop.create_task(until_it_ends())
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    def _lose(self, replica: int, server: Any, why: str) -> None:
        """A replica died: leave it out. The second word of the same death is ignored."""
        if self._servers.get(replica) is not server:
            return
        logger.warning("Rollout replica %d died: %s", replica, why)
        del self._servers[replica]
        self._balance.lose(replica)
        self.dead[replica] = why
        self._some_dead.set()
        self._on_death(replica)

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def means_death(error: BaseException) -> bool:
    """Whether the server is gone, as opposed to a request that it could not serve."""
    return _is_one_of(DEATHS, error)


def _is_one_of(names: frozenset[str], error: BaseException) -> bool:
    causes = [error, getattr(error, "cause", None)]
    kinds = [kind.__name__ for cause in causes for kind in type(cause).__mro__]
    # What Ray cannot carry from one process to another it tells as text.
    return not names.isdisjoint(kinds) or any(name in str(error) for name in names)


def _said(error: Exception) -> str:
    """The last line of an error: Ray's text is the remote stack, which the log has."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
