"""A checkpoint that cannot be written: the real engine says so, leaves no half of it, and goes on."""

import resource

import pytest

from swarm.protocol.errors import CheckpointFailed
from swarm.server.engine.host import EngineHost
from swarm.server.ports import Span, TrainBatch, TrainRow

ROOM = [2_000, 100_000]
"""Bytes that one file may have: not even a small file, or all but the weights."""


@pytest.fixture
async def host(tiny_config):
    engine = EngineHost()
    engine.info = await engine.boot(tiny_config)
    yield engine
    await engine.close()


def allow(host, size):
    """Let the engine's process write files up to ``size`` bytes, as a disk quota would."""
    _, hard = resource.prlimit(host.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(host.pid, resource.RLIMIT_FSIZE, (size, hard))


async def test_a_full_disk_is_told_as_such_and_the_engine_goes_on(host, ask, tmp_path):
    folder = tmp_path / "ck"
    saved = await host.save(str(folder))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for room in ROOM:
        allow(host, room)
        with pytest.raises(CheckpointFailed, match="could not be written"):
            await host.save(str(folder))
        with pytest.raises(CheckpointFailed):
            await host.save(str(tmp_path / "another"))
    # What was there stays whole, nothing half is left, and the engine serves and saves as before.
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["ck"]
    assert (await host.generate(ask("1+1"))).token_ids
    allow(host, resource.RLIM_INFINITY)
    assert (await host.save(str(tmp_path / "another")))["fingerprint"] == saved["fingerprint"]


async def test_an_optimizer_that_does_not_fit_beside_the_weights_is_told_too(host, ask, tmp_path):
    request = ask("11+48")
    answer = await host.generate(request)
    start = len(request.prompt_ids)
    span = Span(start, start + len(answer.token_ids), 1.0)
    row = TrainRow(
        "g/0/0", "e0", request.prompt_ids + answer.token_ids, [span], answer.logprobs, 1.0, 0.1
    )
    assert (await host.train(TrainBatch(1, 1, [row]))).moved
    saved = await host.save(str(tmp_path / "ck"))
    weights = (tmp_path / "ck" / "model.safetensors").stat().st_size
    allow(host, weights + 1000)
    with pytest.raises(CheckpointFailed):
        await host.save(str(tmp_path / "ck"))
    allow(host, resource.RLIM_INFINITY)
    assert (await host.save(str(tmp_path / "ck")))["fingerprint"] == saved["fingerprint"]


async def test_a_folder_that_may_not_be_written_is_told_as_such(host, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointFailed):
        await host.save(str(tmp_path / "file" / "ck"))
    assert (await host.save(str(tmp_path / "ck")))["fingerprint"] == host.info.fingerprint
