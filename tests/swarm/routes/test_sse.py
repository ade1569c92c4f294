import asyncio

import orjson
import pytest

from swarm.protocol.errors import EngineFailed
from swarm.server.routes.sse import KEEP_ALIVE, EventStream, data_block
from swarm.testing import retry_until


class Wire:
    """One ASGI exchange: what was sent, and a client that can leave."""

    def __init__(self):
        self.sent = []
        self.left = asyncio.Event()

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def run(self, stream):
        await stream({"type": "http"}, self.receive, self.send)

    @property
    def body(self):
        return b"".join(m.get("body", b"") for m in self.sent)


async def test_blocks_are_sent_in_order_and_the_answer_ends():
    async def blocks():
        yield b"a"
        yield b"b"

    wire = Wire()
    await wire.run(EventStream(blocks(), headers=lambda: {"x-test": "1"}))
    assert wire.body == b"ab"
    assert wire.sent[0]["status"] == 200
    assert (b"x-test", b"1") in wire.sent[0]["headers"]
    assert wire.sent[-1]["more_body"] is False


async def test_silence_is_filled_with_comments():
    release = asyncio.Event()

    async def blocks():
        await release.wait()
        yield b"late"

    wire = Wire()
    task = asyncio.create_task(wire.run(EventStream(blocks(), keep_alive_s=0.01)))
    await retry_until(lambda: wire.body.count(KEEP_ALIVE) >= 3)
    release.set()
    await task
    assert wire.body.startswith(KEEP_ALIVE)
    assert wire.body.endswith(b"late")


async def test_an_error_before_the_first_block_is_raised_for_a_proper_status():
    async def blocks():
        raise EngineFailed("gone")
        yield b""

    wire = Wire()
    with pytest.raises(EngineFailed):
        await wire.run(EventStream(blocks()))
    assert wire.sent == []


async def test_an_error_after_the_first_block_becomes_the_last_event():
    async def blocks():
        yield b"a"
        raise EngineFailed("gone", hint="wait")

    wire = Wire()
    await wire.run(EventStream(blocks()))
    last = orjson.loads(wire.sent[-1]["body"].removeprefix(b"data: "))
    assert last["error"]["code"] == "engine_failed"
    assert wire.sent[-1]["more_body"] is False


async def test_an_unexpected_error_in_a_stream_tells_its_type_and_not_its_text():
    async def blocks():
        yield b"a"
        raise ValueError("the password is sesame")

    wire = Wire()
    await wire.run(EventStream(blocks()))
    assert b"ValueError" in wire.body
    assert b"sesame" not in wire.body


async def test_the_client_leaving_closes_the_iterator():
    closed = asyncio.Event()

    async def blocks():
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    wire = Wire()
    task = asyncio.create_task(wire.run(EventStream(blocks())))
    await retry_until(lambda: wire.sent)
    wire.left.set()
    await task
    assert closed.is_set()


async def test_a_shutdown_closes_the_iterator_and_says_that_the_answer_is_not_whole():
    closed = asyncio.Event()

    async def blocks():
        try:
            yield b"a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    wire = Wire()
    task = asyncio.create_task(wire.run(EventStream(blocks())))
    await retry_until(lambda: wire.sent)
    task.cancel()
    await task
    assert closed.is_set()
    assert b"shut down before" in wire.body


def test_a_data_block_never_contains_a_line_break_inside():
    assert data_block({"text": "a\nü\u2028"}).count(b"\n") == 2
