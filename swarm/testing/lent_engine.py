"""One real engine, booted once and lent to one service after another: what takes a minute to boot can so run a whole suite.

Each service believes that it has an engine of its own. The engine lives on an event loop in a thread, so that services of
any loop can borrow it. What a new borrower finds are the weights that the last one left, at policy version 0; whoever needs
others (a checkpoint, another model or optimizer) gets a new boot.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import EngineFailed, SwarmError
from swarm.server.ports import Chunk, Engine, EngineInfo, GenerateRequest, TrainBatch, TrainResult

IDLE_S = 120.0
"""How long a borrower that leaves waits until its own generations have ended."""
MOST_TOKENS = 32
ResultT = TypeVar("ResultT")
OnLate = Callable[[Chunk | None], None]


class Lender:
    """Makes engines for services (``engine_factory``), all of them the same one. ``make`` makes that one.

    Answers have ``most_tokens`` at most, whatever was asked for: an untrained model rarely ends one by itself.
    """

    def __init__(
        self, name: str, make: Callable[[], Engine], *, most_tokens: int = MOST_TOKENS
    ) -> None:
        self.most_tokens = most_tokens
        self.name = name
        """The value of ``engine`` in the configurations of its services."""
        self.sharing = True
        """False: each start is a boot of its own, for services that come back to weights of before."""
        self._make = make
        self._engine: Engine | None = None
        self._booted: tuple[object, ...] = ()
        self._info: EngineInfo | None = None
        self._death: asyncio.Task[str] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lender", daemon=True)
        self._thread.start()

    def __call__(self, _name: str) -> LentEngine:
        """Return what a service takes for a new engine."""
        return LentEngine(self)

    def do(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Future[ResultT]:
        """Run ``work`` on the engine's loop; the future is of the caller's."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the engine and the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def engine(self) -> Engine:
        """The real one.

        Raises:
            EngineFailed: there is none.
        """
        if self._engine is None:
            raise EngineFailed("The lent engine is not running.", hint="Boot it.")
        return self._engine

    async def ready(self, config: TrainConfig, checkpoint: str | None) -> EngineInfo:
        """Boot, unless what runs will do (on the engine's loop)."""
        wanted = (config.model, config.optimizer, config.algorithm, config.seed, config.verl)
        fits = self.sharing and checkpoint is None and self._booted == wanted
        fits = fits and self._death is not None and not self._death.done()
        if self._info is not None and fits:
            return self._info
        await self._close()
        self._engine = self._make()
        patient = config.model_copy(update={"engine_hang_s": max(config.engine_hang_s, 1800.0)})
        info = await self._engine.boot(patient, checkpoint=checkpoint)
        # Nobody may take the weights of a checkpoint for those of a beginning.
        self._booted = () if checkpoint else wanted
        self._info = info
        self._death = asyncio.ensure_future(self._engine.died())
        return info

    async def trained(self, batch: TrainBatch) -> TrainResult:
        """Train, and remember what the next borrower finds (on the engine's loop)."""
        result = await self.engine.train(batch)
        if self._info is not None:
            self._info = msgspec.structs.replace(self._info, fingerprint=result.fingerprint)
        return result

    async def _end(self) -> None:
        await self._close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _close(self) -> None:
        engine, self._engine, self._info = self._engine, None, None
        if self._death is not None:
            self._death.cancel()
        if engine is not None:
            await engine.close()


class LentEngine:
    """Implements ``swarm.server.ports.Engine`` for one service; ``close`` gives the engine back without ending it."""

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._lent: Engine | None = None
        self._open: set[asyncio.Future[Any]] = set()
        self._version = 0

    async def boot(self, config: TrainConfig, *, checkpoint: str | None = None) -> EngineInfo:
        """Borrow the engine, booted for this service where it must be."""
        info = await self._lender.do(self._lender.ready(config, checkpoint))
        self._lent, self._version = self._lender.engine, info.policy_version
        return info

    async def generate(self, request: GenerateRequest, *, on_late: OnLate | None = None) -> Chunk:
        """Sample to the end. A cancelled caller aborts; the chunk that ends it then goes to ``on_late``."""
        future = self._kept(self._lender.do(self._now().generate(self._short(request))))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.abort(request.request_id)
            future.add_done_callback(lambda done: _tell(done, on_late))
            raise

    async def stream(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Sample token by token; closing the iterator early aborts."""
        engine, short, loop = self._now(), self._short(request), asyncio.get_running_loop()
        chunks: asyncio.Queue[Chunk | BaseException] = asyncio.Queue()

        def put(item: Chunk | BaseException) -> None:
            with suppress(RuntimeError):  # the borrower's loop has ended
                loop.call_soon_threadsafe(chunks.put_nowait, item)

        async def pump() -> None:
            try:
                async for chunk in engine.stream(short):
                    put(chunk)
            except SwarmError as error:
                put(error)

        pumping = self._kept(self._lender.do(pump()))
        try:
            while True:
                item = await chunks.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if item.finish is not None:
                    return
        finally:
            pumping.cancel()

    def abort(self, request_id: str) -> None:
        """Stop a generation; unknown ids are ignored."""
        engine = self._lent

        async def stop() -> None:
            if engine is not None:
                engine.abort(request_id)

        self._kept(self._lender.do(stop()))

    async def train(self, batch: TrainBatch) -> TrainResult:
        """One update."""
        self._now()
        result = await self._lender.do(self._lender.trained(batch))
        self._version = result.policy_version if result.moved else self._version
        return result

    async def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint; its version is this service's."""
        saved = await self._lender.do(self._now().save(folder))
        return saved | {"policy_version": self._version}

    async def close(self) -> None:
        """Give the engine back once nothing of this service runs on it. Safe twice."""
        self._lent = None
        if self._open:
            await asyncio.wait(self._open, timeout=IDLE_S)

    async def died(self) -> str:
        """Wait for the death of the real one."""
        return await self._lender.do(self._now().died())

    def _now(self) -> Engine:
        if self._lent is None:
            raise EngineFailed("The engine was given back.", hint="Boot it again.")
        return self._lent

    def _short(self, request: GenerateRequest) -> GenerateRequest:
        most = min(request.max_tokens, self._lender.most_tokens)
        return msgspec.structs.replace(request, max_tokens=most)

    def _kept(self, future: asyncio.Future[ResultT]) -> asyncio.Future[ResultT]:
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future


def _tell(done: asyncio.Future[Chunk], on_late: OnLate | None) -> None:
    """Hand over what a generation had sampled when nobody waited for it any more."""
    gone = done.cancelled() or done.exception() is not None
    if on_late is not None:
        on_late(None if gone else done.result())
