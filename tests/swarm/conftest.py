"""Tests marked ``every_engine`` run on each: the toy and the embedded engine here, verl with `make test-verl`.

A real engine boots once a process and is lent to one test after another (``swarm.testing.lent_engine``); a test that comes
back to weights of before says ``every_engine(anew=True)`` and has its own boots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from swarm.server.engine.host import EngineHost
from swarm.server.engine_verl.placement import NONCE
from swarm.testing.engines import serving_on
from swarm.testing.lent_engine import Lender

MADE: dict[str, Callable[[], EngineHost]] = {
    "torch": EngineHost,
    "verl": lambda: EngineHost("swarm.server.engine_verl.child", {NONCE: "every-engine"}),
}
ENGINES = [
    "toy",
    pytest.param("torch", marks=pytest.mark.slow),
    pytest.param("verl", marks=[pytest.mark.verl, pytest.mark.timeout(1800)]),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("every_engine"):
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture(scope="session")
def lenders() -> Iterator[dict[str, Lender]]:
    made: dict[str, Lender] = {}
    yield made
    for lender in made.values():
        lender.close()


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, lenders: dict[str, Lender]) -> Iterator[str]:
    """The name of the engine that this test's services run on."""
    name: str = getattr(request, "param", "toy")
    if name != "toy" and name not in lenders:
        lenders[name] = Lender(name, MADE[name])
    if name == "toy":
        yield name
        return
    mark = request.node.get_closest_marker("every_engine")
    lenders[name].sharing = not mark.kwargs.get("anew", False)
    with serving_on(lenders[name]):
        yield name
