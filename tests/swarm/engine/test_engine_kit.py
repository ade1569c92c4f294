import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.engine.host import EngineHost
from swarm.testing import engine_kit
from swarm.testing.toy_engine import ToyEngine

MADE = {
    "toy": ToyEngine,
    "toy in a child": lambda: EngineHost("swarm.testing.toy_child"),
    "torch": EngineHost,
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MADE)
async def test_an_engine_passes_the_kit(name, tmp_path):
    config = TrainConfig(engine="torch" if name == "torch" else "toy")
    findings = await engine_kit.run(engine_kit.Bench(MADE[name], config, tmp_path))
    assert [finding for finding in findings if not finding.ok] == []
    assert len(findings) == len(engine_kit.CHECKS) + 1


async def test_an_engine_that_trains_nothing_is_told_so(tmp_path):
    class Lazy(ToyEngine):
        async def train(self, batch):
            batch.rows = []
            return await super().train(batch)

    findings = await engine_kit.run(engine_kit.Bench(Lazy, TrainConfig(engine="toy"), tmp_path))
    assert [f.name for f in findings if not f.ok] == ["an_update_moves"]


async def test_an_engine_that_does_not_boot_is_one_finding(tmp_path):
    def broken():
        engine = ToyEngine()
        engine.refuse_boot = "no disk"
        return engine

    (finding,) = await engine_kit.run(engine_kit.Bench(broken, TrainConfig(engine="toy"), tmp_path))
    assert (finding.name, finding.ok) == ("boot", False)
    assert "no disk" in finding.detail
