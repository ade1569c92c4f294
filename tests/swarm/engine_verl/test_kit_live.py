"""The kit that every engine must pass, on the real thing. Needs `make setup-verl`; minutes."""

import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.engine.host import EngineHost
from swarm.server.engine_verl.nonces import NONCE
from swarm.testing import engine_kit

pytestmark = [pytest.mark.verl, pytest.mark.timeout(3600)]


async def test_the_engine_passes_the_kit(tmp_path):
    config = TrainConfig.model_validate(
        {
            "engine": "verl",
            "engine_hang_s": 1800,
            "algorithm": {"kl_coef": 0.01, "minibatches": 2, "epochs": 2},
        }
    )

    def make():
        return EngineHost("swarm.server.engine_verl.child", {NONCE: "kit"})

    findings = await engine_kit.run(engine_kit.Bench(make, config, tmp_path))
    assert [finding for finding in findings if not finding.ok] == []
    assert len(findings) == len(engine_kit.CHECKS) + 1
