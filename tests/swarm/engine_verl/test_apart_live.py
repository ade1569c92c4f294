"""A rollout on (pretended) GPUs of its own, for real: asynchronous updates, weights over gloo. Needs `make setup-verl`; minutes.

One engine for all tests, in order.
"""

import os
import signal

import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.engine_verl.nonces import PREFIX
from swarm.testing.verl_sampling import LONG

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore"),  # verl's, Ray's and vLLM's own, in this process
]

CONFIG = TrainConfig.model_validate(
    {
        "engine": "verl",
        "asynchronous": {"enabled": True, "importance_cap": 1.0},
        "verl": {"rollout_gpus": {"gpus_per_node": 2}},
    }
)


@pytest.fixture(scope="module")
def driver(driven):
    with driven("apart-live", CONFIG) as driver:
        yield driver


def long_ones(driver, *, stream, count=4, first=0):
    return [
        driver.ask_long(noise_key=f"{i}", affinity=f"{i}", stream=stream)
        for i in range(first, first + count)
    ]


def test_every_placement_carries_the_nonce(driver):
    from ray.util import placement_group_table

    names = [row["name"] for row in placement_group_table().values()]
    assert len(names) == 3
    assert all(name.startswith(f"{PREFIX}apart-live-") for name in names)


def test_streams_outlive_a_change_of_weights_and_say_whose_each_token_is(driver):
    learned = [driver.ask(noise_key=f"{i}", affinity=f"{i}") for i in range(8)]
    driver.answers(learned)
    served = driver.served()
    assert served[0] == served[1]
    asked = long_ones(driver, stream=True) + long_ones(driver, stream=False)
    driver.until(lambda: all(driver.chunks[request.request_id] for request in asked[:4]))

    def busy():
        """Whenever the weights change, streams and others are in the middle of it."""
        while driver.engine.load < 8:
            last = len(asked)
            asked.extend(long_ones(driver, stream=last % 3 > 0, count=1, first=last))

    done = driver.overlap(driver.batch(driver.rows(learned), overlapped=True), busy)
    assert (done.moved, done.policy_version) == (True, 1)
    assert done.logprob_gap_max < 1e-3
    now = driver.served()
    assert now[0] == now[1] != served[0]

    answers = driver.answers(asked)
    assert {(len(a.token_ids), a.finish) for a in answers} == {(LONG, "length")}
    assert all(answer.versions == sorted(answer.versions) for answer in answers)
    both = [r for r, a in zip(asked, answers, strict=True) if set(a.versions) == {0, 1}]
    assert len(both) >= 4
    assert {request.stream for request in both} == {True, False}
    # Tokens after the change are of the new weights as a whole: nothing of the old ones is left in their context.
    after = driver.overlap(driver.batch(driver.rows(both, version=1), overlapped=True))
    assert after.logprob_gap_max < 1e-3
    assert after.importance_clipped_share is not None


def test_a_killed_replica_is_replaced_alone_with_the_weights_of_now(driver):
    served, others = driver.served(), driver.processes(0)
    streams, wholes = long_ones(driver, stream=True), long_ones(driver, stream=False)
    driver.until(lambda: all(driver.chunks[request.request_id] for request in streams))
    os.kill(driver.processes(1)[0][0], signal.SIGKILL)
    for answer in driver.answers([*streams, *wholes]):
        assert (len(answer.token_ids), answer.finish) == (LONG, "length")
        assert set(answer.versions) == {2}
    driver.until(lambda: driver.engine.rollout.dead == {})
    assert driver.served() == served
    assert driver.processes(0) == others
    done = driver.overlap(driver.batch(driver.rows([*streams, *wholes]), overlapped=True))
    assert (done.moved, done.logprob_gap_max < 1e-3) == (True, True)
    now = driver.served()
    assert now[0] == now[1] != served[0]
