"""One engine lent to several services, across event loops; the toy stands for one that is slow to boot."""

import asyncio

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import EngineFailed
from swarm.server.ports import GenerateRequest, TrainBatch
from swarm.testing import ToyEngine, ToyFleet, retry_until, settle
from swarm.testing.lent_engine import Lender

CONFIG = TrainConfig(engine="toy")


@pytest.fixture
def fleet():
    return ToyFleet()


@pytest.fixture
def lender(fleet):
    one = Lender("toy", lambda: fleet("toy"))
    yield one
    one.close()


def request(name="r", **more):
    return GenerateRequest(name, [5, 6, 7], 8, 1.0, [], "key", "episode", **more)


async def sampled(engine):
    whole = await engine.generate(request())
    parts = [chunk async for chunk in engine.stream(request(stream=True))]
    assert [token for part in parts for token in part.token_ids] == whole.token_ids
    return whole.token_ids


def test_services_of_several_loops_borrow_one_engine(lender, fleet):
    async def borrow():
        engine = lender("toy")
        info = await engine.boot(CONFIG)
        ids = await sampled(engine)
        await engine.close()
        with pytest.raises(EngineFailed, match="given back"):
            await engine.generate(request())
        return info, ids

    assert asyncio.run(borrow()) == asyncio.run(borrow())
    assert len(fleet.engines) == 1


async def test_a_borrower_finds_the_weights_of_the_one_before_as_a_beginning(lender, fleet):
    first = lender("toy")
    begun = await first.boot(CONFIG)
    done = await first.train(TrainBatch(1, 1, []))
    second = lender("toy")
    found = await second.boot(CONFIG)
    assert (found.fingerprint, found.policy_version) == (done.fingerprint, 0)
    assert begun.policy_version == 0
    assert len(fleet.engines) == 1


async def test_another_model_a_checkpoint_or_the_wish_for_it_is_a_boot(lender, fleet, tmp_path):
    await lender("toy").boot(CONFIG)
    await lender("toy").boot(CONFIG.model_copy(update={"seed": 7}))
    engine = lender("toy")
    await engine.boot(CONFIG)
    await engine.save(str(tmp_path / "saved"))
    assert len(fleet.engines) == 3
    await lender("toy").boot(CONFIG, checkpoint=str(tmp_path / "saved"))
    await lender("toy").boot(CONFIG)
    assert len(fleet.engines) == 5
    lender.sharing = False
    await lender("toy").boot(CONFIG)
    assert len(fleet.engines) == 6
    assert [engine.closed for engine in fleet.engines] == [True] * 5 + [False]


async def test_a_cancelled_caller_gets_the_last_words_once(lender, fleet):
    engine, words = lender("toy"), []
    fleet.prepare = lambda toy: setattr(toy, "hold", asyncio.Event())
    await engine.boot(CONFIG)
    call = asyncio.ensure_future(engine.generate(request(), on_late=words.append))
    await retry_until(lambda: fleet.latest.generating == 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await retry_until(lambda: words)
    await engine.close()
    assert [chunk.finish for chunk in words] == ["abort"]


async def test_the_death_of_the_real_one_is_told_and_the_next_borrower_has_another(lender, fleet):
    engine = lender("toy")
    await engine.boot(CONFIG)
    dying = asyncio.ensure_future(engine.died())
    await settle()
    assert isinstance(fleet.latest, ToyEngine)
    lender.do(_killed(fleet.latest))
    assert await dying == "killed by signal 9"
    with pytest.raises(EngineFailed):
        await engine.generate(request())
    await sampled(await _booted(lender))
    assert len(fleet.engines) == 2


async def _booted(lender):
    engine = lender("toy")
    await engine.boot(CONFIG)
    return engine


async def _killed(toy):
    toy.kill()
