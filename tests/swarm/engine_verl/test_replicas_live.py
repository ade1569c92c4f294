"""Two replicas that share the trainer's (pretended) GPUs, for real. Needs `make setup-verl`; minutes.

One engine for all tests, in order.
"""

import os
import signal

import pytest

from swarm.protocol.config import TrainConfig
from swarm.server.engine_verl.leftovers import lives
from swarm.testing.verl_sampling import LONG

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore"),  # verl's, Ray's and vLLM's own, in this process
]

ROLLOUT = "actor_rollout_ref.rollout"
CONFIG = TrainConfig.model_validate(
    {
        "engine": "verl",
        "verl": {
            "gpus_per_node": 2,
            "options": {
                # Counters to look at, and blocks smaller than a prompt, so that one is cached.
                f"{ROLLOUT}.disable_log_stats": False,
                f"{ROLLOUT}.engine_kwargs.vllm.block_size": 32,
            },
        },
    }
)


@pytest.fixture(scope="module")
def driver(driven):
    with driven("replicas-live", CONFIG) as driver:
        yield driver


def long_ones(driver, episodes, *, stream):
    return [driver.ask_long(affinity=episode, stream=stream) for episode in episodes]


def test_episodes_are_spread_and_stay_and_an_abort_reaches_vllm(driver):
    driver.engine.replicas.hold()
    requests = long_ones(driver, ["one", "two", "one", "two", "three"], stream=True)
    names = [request.request_id for request in requests]
    driver.until(lambda: sum(map(len, driver.inside())) == len(names))
    homes = [driver.engine.rollout.homes()[name] for name in names]
    assert homes == [0, 1, 0, 1, 0]
    assert driver.inside() == [{names[0], names[2], names[4]}, {names[1], names[3]}]

    driver.engine.abort(names[0])
    assert driver.answers(requests[:1])[0].finish == "abort"
    assert names[0] not in driver.inside()[0]
    for name in names[1:]:
        driver.engine.abort(name)
    driver.answers(requests)
    driver.engine.replicas.go_on()
    assert driver.inside() == [set(), set()]
    # vLLM counts what its scheduler runs with each step: one more request brings the number up to date.
    driver.answers([driver.ask(affinity="one"), driver.ask(affinity="two")])
    assert [driver.counter(replica, "vllm:num_requests_running") for replica in (0, 1)] == [0, 0]


def test_an_update_reaches_both_replicas_and_empties_their_caches(driver):
    long_prompt = driver.prompt() * 3

    def ask(affinity):
        return driver.ask(noise_key="same", affinity=affinity, prompt_ids=long_prompt)

    for _ in range(2):
        left, right = driver.answers([ask("left"), ask("right")])
    assert left.token_ids == right.token_ids
    hits = [driver.counter(replica, "vllm:prefix_cache_hits_total") for replica in (0, 1)]
    assert min(hits) > 0, "nothing was cached, so this test would show nothing"

    served = driver.served()
    assert served[0] == served[1]
    done = driver.train([driver.ask(noise_key=f"{i}", affinity=f"{i}") for i in range(8)])
    assert (done.moved, done.logprob_gap_max < 1e-3) == (True, True)
    now = driver.served()
    assert now[0] == now[1] != served[0]

    requests = [ask("left"), ask("right")]
    after = driver.answers(requests)
    assert after[0].logprobs[0] != pytest.approx(left.logprobs[0], abs=1e-3)
    # The trainer computes them anew: a prefix from before the update would show here.
    assert driver.train(requests).logprob_gap_max < 1e-3


@pytest.mark.parametrize("victim", ["server", "scheduler"])
def test_a_killed_replica_is_replaced_alone_and_its_requests_go_on(driver, victim):
    served, others, former = driver.served(), driver.processes(0), driver.processes(1)
    driver.engine.replicas.hold()
    # Episodes of its own: those of a replica that died stay where they went.
    episodes = [f"{victim}-left", f"{victim}-right"]
    streams = long_ones(driver, episodes, stream=True)
    wholes = long_ones(driver, episodes, stream=False)
    driver.until(lambda: sum(map(len, driver.inside())) == 4)
    assert set(driver.engine.rollout.homes().values()) == {0, 1}
    os.kill(former[0][0] if victim == "server" else driver.engine_core(1), signal.SIGKILL)

    driver.until(lambda: 1 in driver.engine.rollout.dead)
    driver.until(lambda: driver.engine.rollout.dead == {})
    driver.engine.replicas.go_on()
    answers = driver.answers([*streams, *wholes])
    assert [(len(a.token_ids), a.finish) for a in answers] == [(LONG, "length")] * 4
    assert driver.served() == served
    assert driver.processes(0) == others
    assert not set(driver.processes(1)) & set(former)
    assert not any(map(lives, former))
    # What was told before and after the death is what the trainer computes too.
    done = driver.train([*streams, *wholes], lr=1e-3)
    assert (done.moved, done.logprob_gap_max < 1e-3) == (True, True)
    assert all(driver.served()[replica] != served[replica] for replica in (0, 1))
