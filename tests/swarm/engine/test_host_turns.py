"""The engine's process: updates that overlap sampling, and a child that hangs."""

import asyncio
import os
import signal

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import EngineFailed
from swarm.server.engine.host import EngineHost
from swarm.server.ports import Span, TrainBatch, TrainRow
from swarm.testing import retry_until

ENDLESS = {"stop_token_ids": [], "max_tokens": 400}


@pytest.fixture
async def host():
    engine = EngineHost()
    config = TrainConfig.model_validate({"asynchronous": {"enabled": True}})
    engine.info = await engine.boot(config)
    yield engine
    await engine.close()


@pytest.fixture
async def hanging():
    """A host that waits no longer than two seconds for a sign of life."""
    engine = EngineHost()
    await engine.boot(TrainConfig.model_validate({"engine_hang_s": 2.0}))
    yield engine
    if engine.pid is not None:
        os.kill(engine.pid, signal.SIGCONT)  # or a failed test would wait for a stopped process
    await engine.close()


def a_batch(step, count=24, length=120):
    rows = [
        TrainRow(
            key=f"g/{i:04d}/0",
            episode_id=f"e{i}",
            ids=[20 + (i * 7 + j) % 150 for j in range(length)],
            spans=[Span(20, length, 1.0)],
            logprobs=[-3.0] * (length - 20),
            advantage=(-1.0) ** i,
            weight=1 / (count * length),
        )
        for i in range(count)
    ]
    return TrainBatch(step, step, rows, overlapped=True)


async def test_streams_and_new_requests_are_served_during_an_update(host, ask):
    stream = host.stream(ask("2+2", stream=True, **ENDLESS))
    first = await anext(stream)
    training = asyncio.create_task(host.train(a_batch(1)))
    versions = list(first.versions)
    while not training.done():
        chunk = await anext(stream)
        versions += chunk.versions
        if len(versions) % 8 == 1:
            whole = await host.generate(ask(f"{len(versions)}+1", max_tokens=2))
            assert len(whole.versions) == 2
    result = await training
    assert (result.moved, result.policy_version) == (True, 1)
    async for chunk in stream:
        versions += chunk.versions
    assert len(versions) == 400
    assert versions == sorted(versions)
    assert set(versions) == {0, 1}
    later = await host.generate(ask("5+5"))
    assert set(later.versions) == {1}


async def test_a_save_during_an_update_is_answered_after_it_with_the_new_weights(
    host, ask, tmp_path
):
    training = asyncio.create_task(host.train(a_batch(1)))
    saving = asyncio.create_task(host.save(str(tmp_path / "ck")))
    second = asyncio.create_task(host.train(a_batch(2)))
    result, saved = await training, await saving
    assert saved["fingerprint"] == result.fingerprint
    assert (await second).policy_version == 2


async def test_a_malformed_batch_is_refused_and_the_engine_lives_on(host, ask):
    bad = a_batch(1)
    bad.rows[3].logprobs = []
    with pytest.raises(EngineFailed, match="log-probabilities"):
        await host.train(bad)
    assert (await host.train(a_batch(2))).moved
    assert (await host.generate(ask("1+1"))).finish == "stop"


async def test_a_child_killed_during_an_update_fails_it_and_the_streams(host, ask):
    stream = host.stream(ask("2+2", stream=True, **ENDLESS))
    await anext(stream)
    training = asyncio.create_task(host.train(a_batch(1, count=200)))
    await anext(stream)
    os.kill(host.pid, signal.SIGKILL)
    with pytest.raises(EngineFailed, match="SIGKILL"):
        await training
    with pytest.raises(EngineFailed, match="SIGKILL"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "sampling"])
async def test_a_stopped_child_is_killed_and_told_from_a_quiet_one(hanging, ask, busy):
    pid, calls = hanging.pid, []
    if busy:
        calls = [asyncio.create_task(hanging.generate(ask("1+1", **ENDLESS)))]
        await asyncio.sleep(0)
    os.kill(pid, signal.SIGSTOP)
    reason = await asyncio.wait_for(hanging.died(), 30)
    assert "said nothing for 2 s" in reason
    for call in calls:
        with pytest.raises(EngineFailed, match="said nothing"):
            await call
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert (await hanging.boot(TrainConfig.model_validate({}))).pid != pid


async def test_an_idle_child_beats_and_is_left_alone(hanging, ask):
    child = hanging._child
    before = child.reads
    await retry_until(lambda: child.reads >= before + 6, timeout_s=30)
    assert (await hanging.generate(ask("1+1"))).finish == "stop"


async def test_a_cancelled_request_hands_over_the_tokens_that_it_had_sampled(host, ask):
    """The host's stream is read beside it, so that it has sampled some for sure."""
    late = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(host.generate(ask("1+1", **ENDLESS), on_late=late.set_result))
    stream = host.stream(ask("2+2", stream=True, **ENDLESS))
    for _ in range(5):
        await anext(stream)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    chunk = await asyncio.wait_for(late, 20)
    assert chunk.finish == "abort"
    assert 0 < len(chunk.token_ids) < 400
    assert len(chunk.token_ids) == len(chunk.logprobs) == len(chunk.versions)
    await stream.aclose()


async def test_a_request_cancelled_at_a_dying_engine_is_told_that_nothing_will_come(host, ask):
    late = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(host.generate(ask("1+1", **ENDLESS), on_late=late.set_result))
    await asyncio.sleep(0)
    os.kill(host.pid, signal.SIGKILL)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await asyncio.wait_for(late, 20) is None


async def test_a_request_that_ends_is_never_late(host, ask):
    late = []
    assert (await host.generate(ask("1+1"), on_late=late.append)).finish == "stop"
    await host.close()
    assert late == []
