import asyncio
import os
import signal
import subprocess
import sys

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, EngineFailed, StateError
from swarm.server.engine.host import EngineHost
from swarm.server.ports import Span, TrainBatch, TrainRow


@pytest.fixture
async def host(tiny_config):
    engine = EngineHost()
    engine.info = await engine.boot(tiny_config)
    yield engine
    await engine.close()


def batch_of(answers, requests, step=1):
    """Alternating advantages over the given answers."""
    total = sum(len(a.token_ids) for a in answers)
    rows = [
        TrainRow(
            key=f"g/{i}/0",
            episode_id=f"e{i}",
            ids=r.prompt_ids + a.token_ids,
            spans=[Span(len(r.prompt_ids), len(r.prompt_ids) + len(a.token_ids), r.temperature)],
            logprobs=a.logprobs,
            advantage=(-1.0) ** i,
            weight=1 / total,
        )
        for i, (a, r) in enumerate(zip(answers, requests, strict=True))
    ]
    return TrainBatch(step, step, rows)


async def test_after_a_death_a_checkpoint_and_the_same_batch_lead_to_the_same_weights(
    host, ask, tiny_config, tmp_path
):
    requests = [ask(f"{i}+48") for i in range(11, 19)]
    answers = await asyncio.gather(*(host.generate(r) for r in requests))
    batch = batch_of(answers, requests)
    first = await host.train(batch)
    assert first.moved
    assert first.fingerprint != host.info.fingerprint
    assert first.logprob_gap_max < 1e-4  # what the sampler said is what the trainer computes
    assert first.tokens == sum(len(a.token_ids) for a in answers)

    saved = await host.save(str(tmp_path / "ck"))
    assert (saved["fingerprint"], saved["policy_version"]) == (first.fingerprint, 1)
    later = batch_of(answers, requests, step=2)
    second = await host.train(later)

    os.kill(host.pid, signal.SIGKILL)
    assert "SIGKILL" in await host.died()
    info = await host.boot(tiny_config, checkpoint=str(tmp_path / "ck"))
    assert (info.fingerprint, info.policy_version) == (first.fingerprint, 1)
    replayed = await host.train(later)
    assert (replayed.fingerprint, replayed.loss) == (second.fingerprint, second.loss)


async def test_a_killed_child_fails_whoever_waits_and_whoever_comes_later(host, ask):
    endless = {"stop_token_ids": [], "max_tokens": 400}
    generation = asyncio.create_task(host.generate(ask("1+1", **endless)))
    stream = host.stream(ask("2+2", stream=True, **endless))
    assert len((await anext(stream)).token_ids) == 1
    death = asyncio.create_task(host.died())

    os.kill(host.pid, signal.SIGKILL)

    with pytest.raises(EngineFailed, match="SIGKILL"):
        await generation
    with pytest.raises(EngineFailed, match="SIGKILL"):
        async for _ in stream:
            pass
    assert "SIGKILL" in await death
    with pytest.raises(EngineFailed):
        await host.train(TrainBatch(1, 1, []))


async def test_abort_cancel_and_a_closed_stream_all_free_the_engine_for_training(host, ask):
    endless = {"stop_token_ids": [], "max_tokens": 400}
    aborted = asyncio.create_task(host.generate(ask("1+1", **endless)))
    cancelled = asyncio.create_task(host.generate(ask("3+3", **endless)))
    stream = host.stream(ask("2+2", stream=True, **endless))
    assert (await anext(stream)).finish is None
    with pytest.raises(StateError):
        await host.train(TrainBatch(1, 1, []))

    await stream.aclose()
    cancelled.cancel()
    host.abort("1+1")
    host.abort("nobody")
    chunk = await aborted
    assert chunk.finish == "abort"
    assert 0 < len(chunk.token_ids) < 400
    with pytest.raises(asyncio.CancelledError):
        await cancelled

    result = await host.train(TrainBatch(1, 1, []))
    assert not result.moved
    assert (result.policy_version, result.fingerprint) == (0, host.info.fingerprint)


async def test_a_model_that_is_not_there_is_a_config_error_and_leaves_no_process(tmp_path):
    host = EngineHost()
    with pytest.raises(ConfigError, match="does not exist"):
        await host.boot(TrainConfig.model_validate({"model": {"path": str(tmp_path / "no")}}))
    assert host.pid is None
    with pytest.raises(EngineFailed, match="not running"):
        await host.save(str(tmp_path / "ck"))
    await host.close()


def test_the_fronts_half_runs_without_torch():
    check = "import sys, swarm.server.engine.host as h; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
