"""Which engine the fakes of this package serve on: the toy, unless a block says ``serving_on(...)``.

So the same tests run on every engine (``tests/swarm/conftest.py``, mark ``every_engine``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from swarm.server.ports import Engine
from swarm.testing.lent_engine import Lender
from swarm.testing.toy_engine import ToyFleet

_lenders: list[Lender] = []


@contextmanager
def serving_on(lender: Lender) -> Generator[None]:
    """Let services that are made in this block, and bring no engines of their own, borrow from ``lender``."""
    _lenders.append(lender)
    try:
        yield
    finally:
        _lenders.pop()


def fleet() -> Callable[[str], Engine]:
    """Return what makes engines for a service: a new ``ToyFleet``, or the lender of the block."""
    return _lenders[-1] if _lenders else ToyFleet()


def engine_name() -> str:
    """Return what configurations of such services name as ``engine``."""
    return _lenders[-1].name if _lenders else "toy"
