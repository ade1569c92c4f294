"""Pictures for real: from an agent's OpenAI client through vLLM and FSDP2 to new weights, on the CPU. Needs `make setup-verl`; minutes."""

import base64
import os
import signal

import pytest

from swarm.client import SwarmClient, Task, run_episodes
from swarm.protocol.states import EpisodeKind
from swarm.testing.server_process import start_server
from swarm.testing.tiny_vision import TOKENS_A_PICTURE, make_tiny_vision, picture
from tests.swarm.engine_verl.test_live import CONFIG, engine_of

pytestmark = [pytest.mark.verl, pytest.mark.timeout(2400)]

COLOURS = "red", "blue", "green"
TASKS = [Task(f"t{i}", {"colours": COLOURS[i % 3 : i % 3 + 1 + i % 2]}) for i in range(64)]


def asking(colours):
    """A user's message with these pictures before the question."""
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(colour)}"}}
        for colour in colours
    ]
    return {"role": "user", "content": [*parts, {"type": "text", "text": "Which colour?"}]}


def encoded(colour):
    return base64.b64encode(picture(colour)).decode()


async def look(episode, task):
    """Two turns, of which the first shows pictures; rewarded for letters of the last colour's name."""
    client = episode.async_openai()
    messages = [asking(task.payload["colours"])]
    said = ""
    for _ in range(2):
        told = await client.chat.completions.create(model="policy", messages=messages)
        answer = told.choices[0].message
        said += answer.content or ""
        messages += [answer.model_dump(exclude_none=True), {"role": "user", "content": "Sure?"}]
    return float(sum(said.count(letter) for letter in task.payload["colours"][-1])) + len(said) % 7


def train(client, until_step):
    run_episodes(TASKS, look, client=client, task_set="colours", parallel=1, until_step=until_step)


def first_logprobs(client, *colours):
    """The twenty likeliest beginnings of an answer to the same question over other pictures."""
    with client.episode("probe", kind=EpisodeKind.EVAL) as episode:
        told = episode.openai().chat.completions.create(
            model="policy",
            messages=[asking(colours)],
            max_tokens=1,
            temperature=1.0,
            logprobs=True,
            top_logprobs=20,
        )
        choices = told.choices[0].logprobs.content[0].top_logprobs
        return {choice.token: choice.logprob for choice in choices}, told.usage.prompt_tokens


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a server says that trains on pictures, whose trainer is killed after two steps."""
    folder = make_tiny_vision(tmp_path_factory.mktemp("vision") / "model")
    config = {**CONFIG, "model": {"path": str(folder)}, "batch": {"tasks": 3, "repeat": 4}}
    server = start_server(tmp_path_factory.mktemp("state") / "state", deadline_s=300)
    try:
        with SwarmClient(server.url, server.token(), chat_timeout_s=1800) as client:
            client.configure(config)
            client.start()
            seen = [first_logprobs(client, "red"), first_logprobs(client, "red")]
            seen += [first_logprobs(client, "blue"), first_logprobs(client, "red", "blue")]
            train(client, 2)
            before = client.metrics(0)
            os.kill(engine_of(server.process.pid)[0], signal.SIGKILL)
            train(client, 3)
            status = client.status()
            yield {"seen": seen, "before": before, "after": client.metrics(0), "status": status}
    finally:
        server.kill()


def test_answers_depend_on_the_picture_and_on_nothing_else(told):
    (red, length), (again, _), (blue, _), (both, longer) = told["seen"]
    assert red == pytest.approx(again, abs=1e-4)
    assert red != pytest.approx(blue, abs=1e-2)
    assert both != pytest.approx(blue, abs=1e-2)
    assert longer - length == TOKENS_A_PICTURE


def test_updates_on_pictures_move_what_is_served_and_sampler_and_trainer_agree(told):
    metrics = told["before"]
    assert [(m.step, m.groups, m.updated) for m in metrics] == [(1, 3, True), (2, 3, True)]
    assert len({m.fingerprint for m in metrics}) == 2
    assert max(m.logprob_gap_max for m in metrics) < 1e-3


def test_a_killed_trainer_replays_its_pictures_to_the_same_weights(told):
    assert told["status"].engine_restarts == 1
    after = [(m.step, m.fingerprint) for m in told["after"]]
    assert after[:2] == [(m.step, m.fingerprint) for m in told["before"]]
    assert after[2][0] == 3
    assert told["after"][2].logprob_gap_max < 1e-3
