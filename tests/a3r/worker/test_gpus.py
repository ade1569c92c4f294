"""GPUs are offered when they were measured free, and never on the word of a table."""

import pytest

from a3r.testing.fake_gpus import FakeGpus
from a3r.worker.gpus import IDLE_MB, GpuOffice, parse_indices


def test_a_gpu_with_a_foreign_process_is_refused_and_named():
    gpus = FakeGpus(3)
    gpus.use(1, 4242, 900, "somebody")
    free, others = GpuOffice(gpus).offer(held=())
    assert free == [0, 2]
    assert others == [{"gpu": 1, "pid": 4242, "name": "somebody", "memory_mb": 900}]


def test_memory_in_use_without_a_visible_process_counts_as_busy():
    gpus = FakeGpus(1)
    gpus.use(0, 1, IDLE_MB + 1)
    hidden = gpus.readings[0]
    gpus.readings[0] = type(hidden)(0, hidden.uuid, hidden.name, hidden.memory_mb, hidden.used_mb)
    assert GpuOffice(gpus).offer(held=())[0] == []


def test_what_an_attempt_holds_is_not_offered_even_when_idle_and_its_processes_are_not_foreign():
    gpus = FakeGpus(2)
    gpus.use(0, 7, 5000)
    assert GpuOffice(gpus).offer(held=[0, 1]) == ([], [])


def test_after_an_attempt_its_gpu_is_offered_only_once_it_is_free():
    gpus = FakeGpus(1)
    office = GpuOffice(gpus)
    gpus.use(0, 7, 5000)
    assert (office.busy([0]), office.offer(held=())[0]) == ([0], [])
    gpus.leave(0)
    assert (office.busy([0]), office.offer(held=())[0]) == ([], [0])


def test_a_silent_driver_means_no_gpu_and_a_person_may_give_only_some():
    gpus = FakeGpus(4)
    office = GpuOffice(gpus, allowed=parse_indices("1-2"))
    assert office.offer(held=())[0] == [1, 2]
    assert [g["index"] for g in office.inventory()] == [1, 2]
    gpus.silent = "the driver does not answer"
    assert office.offer(held=()) == ([], [])


def test_a_gpu_that_was_given_and_is_not_there_is_named():
    gpus = FakeGpus(2)
    assert GpuOffice(gpus, allowed=parse_indices("1,7")).absent() == [7]
    assert GpuOffice(gpus).absent() == []
    gpus.silent = "the driver does not answer"
    assert GpuOffice(gpus, allowed=parse_indices("1,7")).absent() == [1, 7]


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "0-", "1.5", "²"])
def test_a_list_of_gpus_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="0-3,6"):
        parse_indices(text)


def test_a_worker_offers_its_free_gpus_with_each_claim(lab):
    gpus = FakeGpus(2)
    gpus.use(1, 99, 3000)
    lab.worker(gpus=GpuOffice(gpus))
    claim = lab.until(lambda: lab.hub.claims and lab.hub.claims[-1])
    assert claim.free_gpus == [0]
    assert [c["pid"] for c in claim.co_tenants] == [99]
    [registered] = lab.hub.workers.values()
    assert registered.inventory["cpus"] >= 1
    assert "a3r" in registered.inventory["software"]
