"""Programs as episodes, and agents under a debugger."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from swarm.client import ClientUsageError, SwarmClient
from swarm.client.debug import choose_task, debug_agent, describe, load_agent
from swarm.client.exec import ExecRequest, ExecResult, read_reward, run_program
from swarm.protocol.errors import RewardError
from swarm.protocol.states import EpisodeKind, EpisodeState

CHAT = """
import json, os, urllib.request
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
with urllib.request.urlopen(request) as reply:
    message = json.load(reply)["choices"][0]["message"]
print("said", message["role"])
"""


def run(client: SwarmClient, code: str, **options: object) -> tuple[ExecResult, str]:
    output = io.BytesIO()
    request = ExecRequest(
        command=[sys.executable, "-c", code],
        task_id="t",
        environ=dict(os.environ),
        **options,  # type: ignore[arg-type]
    )
    return run_program(client, request, output), output.getvalue().decode()


def test_a_program_finds_the_model_and_its_last_line_is_the_reward(client: SwarmClient) -> None:
    result, output = run(client, CHAT + 'print(json.dumps({"reward": 0.5, "metrics": {"n": 1}}))')
    assert output.startswith("said assistant")
    assert (result.reward, result.returncode, result.problem) == (0.5, 0, "")
    assert result.reply is not None
    assert result.reply.accepted
    trace = client.trace(result.episode_id)
    assert (trace.reward, trace.metrics, trace.call_count) == (0.5, {"n": 1.0}, 1)


def test_a_failing_program_aborts_its_episode(client: SwarmClient) -> None:
    result, _ = run(client, "print('{\"reward\": 1}'); raise SystemExit(7)")
    assert (result.returncode, result.reply) == (7, None)
    assert client.trace(result.episode_id).state is EpisodeState.ABORTED


def test_a_train_program_without_a_reward_is_aborted_and_an_eval_one_is_not(
    client: SwarmClient,
) -> None:
    train, _ = run(client, "print('done')")
    assert "no reward" in train.problem
    evaluation, _ = run(client, "print('done')", kind=EpisodeKind.EVAL)
    assert evaluation.reply is not None
    assert evaluation.reward is None


def test_the_reward_may_come_from_a_file(client: SwarmClient, tmp_path: Path) -> None:
    path = tmp_path / "reward"
    result, _ = run(client, f"open({str(path)!r}, 'w').write('0.25')", reward_file=path)
    assert result.reward == 0.25
    missing, _ = run(client, "pass", reward_file=tmp_path / "absent")
    assert "absent" in missing.problem


def test_a_program_that_takes_too_long_is_stopped(client: SwarmClient) -> None:
    result, _ = run(client, "import time; time.sleep(60)", timeout_s=0.3)
    assert result.timed_out
    assert client.trace(result.episode_id).state is EpisodeState.ABORTED


@pytest.mark.skipif(os.name != "posix", reason="process groups")
@pytest.mark.timeout(20)
def test_what_the_program_started_is_stopped_with_it(client: SwarmClient) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    result, _ = run(client, code, timeout_s=1.0)
    assert result.timed_out


def test_a_program_that_does_not_exist_aborts_its_episode(client: SwarmClient) -> None:
    request = ExecRequest(command=["/nonexistent/program"], task_id="t")
    with pytest.raises(ClientUsageError, match="cannot be started"):
        run_program(client, request, io.BytesIO())
    assert client.pool().episodes_open == 0


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"reward": 1}\n', (1.0, {})),
        (b'{"reward": 0, "metrics": {"a": 2}}', (0.0, {"a": 2.0})),
        (b"0.5", (0.5, {})),
        (b"all done", None),
        (b'{"score": 1}', None),
    ],
)
def test_rewards_are_read_from_json(raw: bytes, expected: object) -> None:
    assert read_reward(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b'{"reward": "1"}',
        b'{"reward": true}',
        b'{"reward": null}',
        b'{"reward": 1, "metrics": [1]}',
    ],
)
def test_rewards_that_are_no_numbers_are_refused(raw: bytes) -> None:
    with pytest.raises(RewardError):
        read_reward(raw)


AGENT = """
from swarm.client import Task
tasks = [Task("first", {"n": 1}), Task("second", {"n": 2})]
async def agent(episode, task):
    await episode.chat([{"role": "user", "content": f"Say {task.payload['n']}"}])
    return 1.0, {"n": task.payload["n"]}
def plain(episode, task):
    episode.chat([{"role": "user", "content": "plain"}])
    raise LookupError("breaks here")
"""


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_agent_under_test.py"
    path.write_text(AGENT)
    return path


def test_debug_plays_one_eval_episode_and_describes_it(
    client: SwarmClient, agent_file: Path
) -> None:
    agent, module = load_agent(str(agent_file))
    result = debug_agent(client, agent, choose_task(module, "1"))
    text = "\n".join(describe(result.trace))
    assert result.error is None
    assert (result.trace.kind, result.trace.reward) == (EpisodeKind.EVAL, 1.0)
    assert "Say 2" in text
    assert "reward 1.0, n 2" in text
    assert client.pool().episodes_finished == 0


def test_debug_shows_the_trace_of_an_agent_that_raised(
    client: SwarmClient, agent_file: Path
) -> None:
    agent, module = load_agent(f"{agent_file}:plain")
    result = debug_agent(client, agent, choose_task(module, "first"))
    assert isinstance(result.error, LookupError)
    assert result.trace.state is EpisodeState.ABORTED
    assert result.trace.call_count == 1


def test_debug_names_what_a_file_offers(agent_file: Path) -> None:
    with pytest.raises(ClientUsageError) as caught:
        load_agent(f"{agent_file}:nobody")
    assert "plain" in caught.value.hint
    with pytest.raises(ClientUsageError):
        load_agent("nowhere.py")
    _, module = load_agent(str(agent_file))
    with pytest.raises(ClientUsageError):
        choose_task(module, "third")
