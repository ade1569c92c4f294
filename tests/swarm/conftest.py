"""Tests marked ``every_engine`` run on each: the toy with `make test`, the embedded engine with `make test-long`, verl with `make test-verl`.

A real engine boots once a process and is lent to one test after another (``swarm.testing.lent_engine``); a test that comes
back to weights of before says ``every_engine(anew=True)`` and has its own boots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from swarm.cli.serve import engine_factory
from swarm.testing.engines import serving_on
from swarm.testing.lent_engine import Lender

ENGINES = [
    "toy",
    pytest.param("torch", marks=pytest.mark.long),
    pytest.param("verl", marks=[pytest.mark.verl, pytest.mark.timeout(1800)]),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("every_engine"):
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture(scope="session")
def lender_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lender]]:
    """Name -> who lends that engine, made as `swarm serve` makes it."""
    make = engine_factory(tmp_path_factory.mktemp("every-engine"))
    made: dict[str, Lender] = {}

    def lender(name: str) -> Lender:
        if name not in made:
            made[name] = Lender(name, partial(make, name))
        return made[name]

    yield lender
    for one in made.values():
        one.close()


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, lender_of: Callable[[str], Lender]) -> Iterator[str]:
    """The name of the engine that this test's services run on."""
    name: str = getattr(request, "param", "toy")
    if name == "toy":
        yield name
        return
    mark = request.node.get_closest_marker("every_engine")
    lender = lender_of(name)
    lender.sharing = not mark.kwargs.get("anew", False)
    with serving_on(lender):
        yield name
