"""What every engine must pass before a server may run on it: checks of ``swarm.server.ports.Engine``, on any machine.

``await run(bench)`` boots one engine, plays with it, and says what holds; a check that fails does not stop the others.
Used on the toy, torch and verl engines, and on yours (``docs/guides/add-an-engine.md``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import EngineFailed
from swarm.server.model_files import resolve_model
from swarm.server.ports import (
    Chunk,
    Engine,
    EngineInfo,
    GenerateRequest,
    SamplingParams,
    Span,
    TrainBatch,
    TrainRow,
)

logger = logging.getLogger(__name__)

QUESTIONS = 8
ENOUGH_TOKENS = 12


@dataclass(frozen=True)
class Finding:
    """One check: whether the engine passed, and what was seen when it did not."""

    name: str
    ok: bool
    detail: str = ""


@dataclass
class Bench:
    """What the checks work with. ``make`` makes engines, ``config`` names the model, ``folder`` takes checkpoints."""

    make: Callable[[], Engine]
    config: TrainConfig
    folder: Path
    gap: float = 1e-3
    """Largest difference of log-probabilities between sampler and trainer; 16-bit sampling needs more."""
    exact: bool = True
    """Whether the same batch on the same weights must give the same bits; not so on every GPU."""
    asked: int = field(default=0, init=False)
    engine: Engine = field(init=False)
    """The one that runs now."""

    def __post_init__(self) -> None:
        """Read the model's tokenizer."""
        folder = resolve_model(self.config.model.path)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def boot(self, checkpoint: str | None = None) -> EngineInfo:
        """Boot a new engine, which is the one that runs now."""
        self.engine = self.make()
        return await self.engine.boot(self.config, checkpoint=checkpoint)

    def ask(self, question: str = "3+4", **changes: object) -> GenerateRequest:
        """Return a request for one question, of a fresh id unless ``changes`` name one."""
        self.asked += 1
        text = (
            "<|im_start|>system\nUse the tool to add two numbers.<|im_end|>\n"
            f"<|im_start|>user\nCompute {question}.<|im_end|>\n<|im_start|>assistant\n"
        )
        values: dict[str, object] = {
            "request_id": f"kit-{self.asked}",
            "prompt_ids": self._tokenizer.encode(text, add_special_tokens=False).ids,
            "max_tokens": ENOUGH_TOKENS,
            "temperature": 1.0,
            "stop_token_ids": self.stops,
            "noise_key": question,
            "affinity": question,
        }
        return GenerateRequest(**(values | changes))  # type: ignore[arg-type]

    @property
    def stops(self) -> list[int]:
        """The token that ends an answer."""
        token = self._tokenizer.token_to_id("<|im_end|>")
        return [] if token is None else [token]

    def text(self, ids: list[int]) -> str:
        """Return the text of an answer, without control tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    async def rows(self) -> list[TrainRow]:
        """Sample a few answers and make rows of them, every second one good."""
        requests = [self.ask(f"{i}+4") for i in range(QUESTIONS)]
        answers = await asyncio.gather(*map(self.engine.generate, requests))
        total = sum(len(answer.token_ids) for answer in answers)
        return [
            _row(i, request, answer, total)
            for i, (request, answer) in enumerate(zip(requests, answers, strict=True))
        ]


def _row(index: int, request: GenerateRequest, answer: Chunk, total: int) -> TrainRow:
    start = len(request.prompt_ids)
    return TrainRow(
        key=f"s0.g{index // 4}/{index % 4}/0",
        episode_id=f"e{index}",
        ids=request.prompt_ids + answer.token_ids,
        spans=[Span(start, start + len(answer.token_ids), request.temperature)],
        logprobs=answer.logprobs,
        advantage=1.0 if index % 2 else -1.0,
        weight=1 / total,
    )


Check = Callable[[Bench], Awaitable[None]]


async def same_key_same_tokens(bench: Bench) -> None:
    """The same noise key, weights and prompt give the same tokens."""
    one, two = [await bench.engine.generate(bench.ask(noise_key="same")) for _ in range(2)]
    assert one.token_ids == two.token_ids, f"{one.token_ids} and {two.token_ids}"


async def other_keys_other_tokens(bench: Bench) -> None:
    """Other noise keys give other tokens, sooner or later."""
    drawn = [await bench.engine.generate(bench.ask(noise_key=f"key {i}")) for i in range(QUESTIONS)]
    assert len({tuple(answer.token_ids) for answer in drawn}) > 1, "always the same tokens"


async def a_logprob_each(bench: Bench) -> None:
    """Each sampled token has a log-probability, and an answer an end."""
    answer = await bench.engine.generate(bench.ask())
    assert len(answer.logprobs) == len(answer.token_ids) > 0, f"{answer!r}"
    assert all(value <= 0 for value in answer.logprobs), f"{answer.logprobs}"
    assert answer.finish in ("stop", "length"), f"finish is {answer.finish!r}"


async def limits_hold(bench: Bench) -> None:
    """``max_tokens`` cuts, and says so; a stop token ends an answer and is part of it."""
    cut = await bench.engine.generate(bench.ask(max_tokens=1, stop_token_ids=[]))
    assert (len(cut.token_ids), cut.finish) == (1, "length"), f"{cut!r}"
    stopped = await bench.engine.generate(bench.ask(stop_token_ids=cut.token_ids))
    assert stopped.token_ids == cut.token_ids, f"{stopped!r}"
    assert stopped.finish == "stop", f"finish is {stopped.finish!r}"


async def streams_add_up(bench: Bench) -> None:
    """A stream has the tokens of the whole answer, and one end, in its last chunk."""
    whole = await bench.engine.generate(bench.ask(noise_key="stream"))
    chunks = [c async for c in bench.engine.stream(bench.ask(noise_key="stream", stream=True))]
    assert [t for c in chunks for t in c.token_ids] == whole.token_ids, f"{chunks!r}"
    assert [c.finish for c in chunks if c.finish] == [whole.finish], f"{chunks!r}"


async def constraints_hold(bench: Bench) -> None:
    """An answer under a regular expression matches it, and one of fixed choices is one of them."""
    for kind, body, pattern in (
        ("regex", "[0-9]{3}", "[0-9]{3}"),
        ("choice", ["12", "345"], "12|345"),
    ):
        grammar = SamplingParams(grammar=json.dumps({"kind": kind, "body": body}))
        answer = await bench.engine.generate(bench.ask(params=grammar))
        text = bench.text(answer.token_ids)
        assert re.fullmatch(pattern, text), f"{kind}: {text!r}"


async def aborts_end(bench: Bench) -> None:
    """An unknown id is ignored; an aborted request ends, and a cancelled caller's last words come exactly once."""
    bench.engine.abort("nobody")
    request = bench.ask(max_tokens=200, stop_token_ids=[])
    running = asyncio.ensure_future(bench.engine.generate(request))
    await asyncio.sleep(0)
    bench.engine.abort(request.request_id)
    assert (await running).finish in ("abort", "length", "stop")
    late: asyncio.Queue[Chunk | None] = asyncio.Queue()
    request = bench.ask(max_tokens=200, stop_token_ids=[])
    running = asyncio.ensure_future(bench.engine.generate(request, on_late=late.put_nowait))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await asyncio.wait_for(late.get(), 60) is not None
    assert late.empty(), "on_late was called twice"


async def an_update_moves(bench: Bench) -> None:
    """Rows move weights, sampler and trainer agree on them, and a checkpoint brings weights and version back."""
    batch = TrainBatch(1, 1, await bench.rows(), lr=1e-3)
    done = await bench.engine.train(batch)
    assert done.moved, f"{done!r}"
    assert (done.step, done.policy_version, done.rolled_back) == (1, 1, ""), f"{done!r}"
    assert done.logprob_gap_max <= bench.gap, f"the gap is {done.logprob_gap_max}"
    saved = await bench.engine.save(str(bench.folder / "one"))
    assert saved["fingerprint"] == done.fingerprint, f"{saved!r}"
    more = await bench.engine.train(TrainBatch(2, 2, await bench.rows(), lr=1e-3))
    assert more.fingerprint != done.fingerprint, "the second update moved nothing"
    await bench.engine.close()
    info = await bench.boot(str(bench.folder / "one"))
    assert (info.fingerprint, info.policy_version) == (done.fingerprint, 1), f"{info!r}"


async def a_stream_that_was_left_is_in_nobodys_way(bench: Bench) -> None:
    """A stream that its reader left is over for the front at once: an update may follow without a pause."""
    rows = await bench.rows()
    chunks = bench.engine.stream(bench.ask(max_tokens=200, stop_token_ids=[], stream=True))
    async with aclosing(cast("AsyncGenerator[Chunk]", chunks)):
        async for _ in chunks:
            break
    done = await bench.engine.train(TrainBatch(8, 8, rows, lr=1e-3))
    assert done.step == 8, f"{done!r}"


async def no_rows_move_nothing(bench: Bench) -> None:
    """An empty batch leaves weights and version as they are."""
    before = await bench.engine.save(str(bench.folder / "before"))
    done = await bench.engine.train(TrainBatch(9, 9, []))
    assert not done.moved, f"{done!r}"
    assert done.fingerprint == before["fingerprint"], f"{done!r}"


async def a_replay_has_the_same_bits(bench: Bench) -> None:
    """The same batch on the same checkpoint gives the same fingerprint: a resumed run is the run."""
    rows = await bench.rows()
    start = str(bench.folder / "start")
    await bench.engine.save(start)
    once = await bench.engine.train(TrainBatch(10, 10, rows, lr=1e-3))
    await bench.engine.close()
    await bench.boot(start)
    again = await bench.engine.train(TrainBatch(10, 10, rows, lr=1e-3))
    same = once.fingerprint == again.fingerprint
    assert same or not bench.exact, f"{once.fingerprint} and {again.fingerprint}"


async def closes_quietly(bench: Bench) -> None:
    """``close`` twice is no error; a closed engine refuses to sample."""
    await bench.engine.close()
    await bench.engine.close()
    try:
        await bench.engine.generate(bench.ask())
    except EngineFailed:
        return
    raise AssertionError("a closed engine sampled")


CHECKS: tuple[Check, ...] = (
    same_key_same_tokens,
    other_keys_other_tokens,
    a_logprob_each,
    limits_hold,
    streams_add_up,
    constraints_hold,
    aborts_end,
    a_stream_that_was_left_is_in_nobodys_way,
    no_rows_move_nothing,
    an_update_moves,
    a_replay_has_the_same_bits,
    closes_quietly,
)
"""In this order; the last ones boot anew and end the engine."""


async def run(bench: Bench, checks: tuple[Check, ...] = CHECKS) -> list[Finding]:
    """Boot an engine and return what holds, one finding a check; the engine is closed at the end.

    A boot that fails is the one finding ``boot``.
    """
    try:
        info = await bench.boot()
    except Exception:  # noqa: BLE001 - the kit tells, whatever is broken
        await bench.engine.close()
        return [Finding("boot", ok=False, detail=traceback.format_exc(limit=3))]
    sound = bool(info.fingerprint) and info.policy_version == 0 and info.max_model_len > 0
    findings = [Finding("boot", sound, "" if sound else f"{info!r}")]
    try:
        findings += [await _checked(check, bench) for check in checks]
    finally:
        await bench.engine.close()
    return findings


async def _checked(check: Check, bench: Bench) -> Finding:
    began, detail = time.monotonic(), ""
    try:
        await check(bench)
    except Exception as error:  # noqa: BLE001 - see run
        detail = f"{type(error).__name__}: {error}"
    took_s = time.monotonic() - began
    logger.info("%s: %s (%.1f s)", check.__name__, detail or "holds", took_s)
    return Finding(check.__name__, ok=not detail, detail=detail)
