"""Many short episodes leave no trace in memory or in the table of open files; ``make soak`` plays very many."""

import pytest

from swarm.testing.soak import Flatness, Sample, soak


def flatness(*server_mib, handles=20):
    samples = [Sample(n, mib, 20, 50.0, 20) for n, mib in enumerate(server_mib)]
    samples[-1] = Sample(99, server_mib[-1], handles, 50.0, 20)
    return Flatness(samples, 1.0)


def test_growth_is_what_the_end_has_more_than_the_beginning():
    assert flatness(60.0, 90.0, 61.0).problems() == []
    (problem,) = flatness(60.0, 61.0, 90.0).problems()
    assert "server_mib grew by 30.0" in problem
    (problem,) = flatness(60.0, 60.0, handles=40).problems()
    assert "server_handles grew by 20" in problem


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_many_short_episodes_leave_memory_and_file_handles_flat(tmp_path):
    found = soak(tmp_path / "state", 2000)
    assert found.samples[-1].episodes >= 2000 - 64
    assert found.problems() == []
