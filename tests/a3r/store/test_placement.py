"""Which attempt a worker gets: it must fit, GPUs are never given twice, and large attempts do not starve."""

from typing import Any

import pytest

from a3r.blueprints.model import Resources
from a3r.core.placement import Offer
from a3r.core.types import WorkerState
from a3r.store.placement import RESERVE_AFTER_S
from a3r.store.store import Store


@pytest.fixture
def big(study: Any, store: Store) -> str:
    """A run that wants two GPUs, queued."""
    run = study.run("big", resources=Resources(gpus=2))
    return store.queue_attempt(run.id, study.clock.now).id


def small(study: Any, store: Store, name: str = "small") -> str:
    return store.queue_attempt(study.run(name).id, study.clock.now).id


def host(store: Store, gpus: int = 2, slots: int = 4) -> None:
    store.upsert_worker("w", "host", 1, slots, {"gpus": [{}] * gpus}, 0.0)


def claim(store: Store, study: Any, offer: Offer) -> Any:
    return store.claim_attempt("w", study.clock.now, 10.0, offer)


def test_an_attempt_gets_the_gpus_that_were_measured_free(
    study: Any, store: Store, big: str
) -> None:
    host(store)
    other = {"gpu": 0, "pid": 7, "name": "stranger", "memory_mb": 900}
    attempt = claim(store, study, Offer(4, (2, 3), (other,)))
    assert (attempt.id, attempt.placement) == (big, {"gpus": [2, 3], "co_tenants": [other]})


def test_an_attempt_that_does_not_fit_waits_and_a_smaller_one_overtakes_it(
    study: Any, store: Store, big: str
) -> None:
    host(store)
    little = small(study, store)
    assert claim(store, study, Offer(4, (0,))).id == little
    assert claim(store, study, Offer(4, (0,))) is None
    assert claim(store, study, Offer(4, (0, 1))).id == big


def test_a_large_attempt_is_not_overtaken_for_ever_where_it_could_fit(
    study: Any, store: Store, big: str
) -> None:
    host(store)
    study.clock.now += RESERVE_AFTER_S
    small(study, store)
    assert claim(store, study, Offer(4, (0,))) is None
    store.upsert_worker("w", "host", 1, 4, {"gpus": [{}]}, 0.0)  # it could never hold the large one
    assert claim(store, study, Offer(4, (0,))) is not None


def test_a_gpu_is_never_leased_twice_whatever_is_measured(study: Any, store: Store) -> None:
    host(store)
    for name in ("a", "b"):
        run = study.run(name, resources=Resources(gpus=1))
        store.queue_attempt(run.id, study.clock.now)
    first = claim(store, study, Offer(4, (0,)))
    assert claim(store, study, Offer(4, (0,))) is None
    study.finish(first, "failed")
    assert claim(store, study, Offer(4, (0,))).placement["gpus"] == [0]


def test_a_lost_attempt_gives_its_gpu_back_and_slots_count(study: Any, store: Store) -> None:
    host(store)
    for name in ("a", "b"):
        run = study.run(name, resources=Resources(gpus=1, slots=2))
        store.queue_attempt(run.id, study.clock.now)
    assert claim(store, study, Offer(1, (0,))) is None
    study.lose(claim(store, study, Offer(2, (0,))))
    assert claim(store, study, Offer(2, (0,))) is not None


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.REMOVED])
def test_a_worker_that_drains_claims_nothing_and_stays_so_when_it_registers_again(
    study: Any, store: Store, state: WorkerState
) -> None:
    host(store)
    small(study, store)
    store.set_worker_state("w", state)
    host(store)
    assert claim(store, study, Offer(4)) is None
    store.set_worker_state("w", WorkerState.ACTIVE)
    assert claim(store, study, Offer(4)) is not None
