"""Pictures for real, from an agent's call to the served weights: Ray, FSDP2, vLLM on the CPU. Needs `make setup-verl`; minutes.

The model is the tiny one of ``tiny_vision``; vLLM runs it in transformers' own code where torchvision is missing, which its own
LLaVA imports.
"""

import base64
import os
import signal
from importlib.util import find_spec

import pytest

from swarm.client import ComputedTasks, SwarmClient, run_episodes
from swarm.protocol.config import TrainConfig
from swarm.server.ports import SamplingParams
from swarm.testing.server_process import start_server
from swarm.testing.tiny_vision import IMAGE_ID, TOKENS_A_PICTURE, make_tiny_vision, picture

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore"),  # verl's, Ray's and vLLM's own, in this process
]

STEPS = 3
COLOURS = ("red", "blue")
GAP = 1e-3
VLLM = {} if find_spec("torchvision") else {"model_impl": "transformers"}


def configured(folder, **changes):
    return {
        "run_name": "pictures",
        "seed": 3,
        "model": {"path": str(folder)},
        "sampling": {"max_response_tokens": 8},
        "optimizer": {"lr": 3e-3},
        "batch": {"tasks": 2, "repeat": 4},
        "checkpoint": {"every_steps": 2, "keep": 2},
        "engine_hang_s": 1800.0,
        "episode": {"idle_deadline_s": 1800.0, "total_deadline_s": 3600.0},
        "stop_at_step": STEPS,
        "engine": "verl",
        "verl": {"options": {"actor_rollout_ref.rollout.engine_kwargs.vllm": VLLM}} if VLLM else {},
        **changes,
    }


def shown(colour):
    data = base64.b64encode(picture(colour)).decode()
    return [
        {"type": "text", "text": "What is "},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]


async def look(episode, task):
    """Two looks at two colours; red is answered in high letters, blue in low ones."""
    messages, heights = [], []
    for colour in (task.payload["colour"], *COLOURS):
        messages.append({"role": "user", "content": shown(colour)})
        answer = await episode.chat(messages)
        messages.append(answer.message)
        said = answer.text.encode("utf-8", "replace")
        height = sum(said) / (128 * len(said)) if said else 0.5
        heights.append(height if colour == "red" else 1 - height)
    return sum(heights) / len(heights), {"turns": float(len(heights))}


TASKS = ComputedTasks(lambda index: {"task_id": f"t{index}", "colour": COLOURS[index % 2]}, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny_vision(tmp_path_factory.mktemp("vision") / "model")


@pytest.fixture(scope="module")
def driver(driven, folder):
    config = TrainConfig.model_validate(configured(folder, asynchronous={"enabled": False}))
    with driven("pictures-live", config) as driver:
        yield driver


def look_at(driver, *colours, **changes):
    """Ask with the pictures in the prompt, without an end of its own."""
    ids = [65, *(part for _ in colours for part in (IMAGE_ID, 66)), 67]
    values = {
        "prompt_ids": ids,
        "images": [picture(colour) for colour in colours],
        "stop_token_ids": [],
        "params": SamplingParams(ignore_eos=True),
        "noise_key": "same",
    }
    return driver.ask(**(values | changes))


def test_the_engine_says_how_many_tokens_a_picture_takes(driver):
    assert driver.engine.info().image_tokens == TOKENS_A_PICTURE


def test_another_picture_is_another_answer_and_the_same_one_the_same(driver):
    asked = [look_at(driver, colour) for colour in ("red", "blue", "red")]
    red, blue, again = driver.answers(asked)
    assert (red.token_ids, red.logprobs) == (again.token_ids, pytest.approx(again.logprobs))
    assert abs(red.logprobs[0] - blue.logprobs[0]) > GAP


def test_a_broken_picture_ends_its_own_request_and_no_other(driver):
    broken = look_at(driver, "red", images=[picture("red")[:-30]])
    good = look_at(driver, "red", stream=True)
    ended, answered = driver.answers([broken, good])
    assert (ended.token_ids, ended.finish) == ([], "abort")
    assert answered.finish == "length"
    assert driver.engine.rollout.lost == ""


def test_updates_on_pictures_and_text_together_move_what_is_served(driver):
    """The second gap is of pictures that vLLM has seen before, with a vision half that has moved since."""
    served = [driver.served()]
    for step in range(3):
        asked = [
            look_at(driver, *colours, noise_key=f"{step}-{at}", affinity=f"{at}")
            for at, colours in enumerate([("red",), ("blue",), (), ("blue", "red")] * 4)
        ]
        # The front ends an answer at an image token; here such an answer is left out.
        answers = zip(asked, driver.answers(asked), strict=True)
        kept = [request for request, answer in answers if IMAGE_ID not in answer.token_ids]
        assert len(kept) > len(asked) / 2
        done = driver.train(kept)
        assert (done.moved, done.rolled_back) == (True, "")
        assert done.logprob_gap_max < GAP
        served.append(driver.served())
    assert len({str(names) for names in served}) == 4


@pytest.fixture(scope="module")
def trained(folder, engine_of, tmp_path_factory):
    """Metrics before and after the engine was killed with pictures of an open step, and a trace."""
    state = tmp_path_factory.mktemp("pictures") / "state"
    server = start_server(state, "--engine", "verl", deadline_s=300)
    try:
        with SwarmClient(server.url, server.token(), chat_timeout_s=1800) as client:
            client.configure(configured(folder))
            client.start()
            train(client, STEPS - 1)
            before = client.metrics(0)
            os.kill(engine_of(server.process.pid)[0], signal.SIGKILL)
            train(client, STEPS)
            after, restarts = client.metrics(0), client.status().engine_restarts
    finally:
        server.kill()
    return {"before": before, "after": after, "restarts": restarts}


def train(client, steps):
    """One episode at a time, so that the order of finishes does not depend on the machine."""
    run_episodes(TASKS, look, client=client, task_set="colours", parallel=1, until_step=steps)


def test_an_agent_that_shows_pictures_is_trained_through_the_endpoint(trained):
    metrics = trained["before"]
    assert [m.step for m in metrics] == [1, 2]
    assert all(m.updated for m in metrics)
    assert len({m.fingerprint for m in metrics}) == 2
    assert max(m.logprob_gap_max for m in metrics) < GAP


def test_a_killed_trainer_replays_the_pictures_to_the_same_weights(trained):
    assert trained["restarts"] == 1
    told = [(m.step, m.fingerprint) for m in trained["after"]]
    assert told[:2] == [(m.step, m.fingerprint) for m in trained["before"]]
    assert told[2][0] == STEPS
    assert trained["after"][2].logprob_gap_max < GAP
