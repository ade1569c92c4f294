"""The provider that follows a script: by name, with each of its moods, as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from a3r.core.errors import NotFound
from a3r.core.llm import ModelMessage, ModelRequest
from a3r.testing.stand_in.moods import MOODS, wrong_word
from a3r.testing.stand_in.script import Answer, by_task, in_turn, said, task_of
from a3r.testing.stand_in.scripts import SCRIPTS, find_script
from a3r.testing.stand_in.server import StandIn


def _request(*words: str) -> ModelRequest:
    roles = ("user", "assistant")
    messages = (ModelMessage(role=roles[n % 2], content=word) for n, word in enumerate(words))
    return ModelRequest(messages=tuple(messages))


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(body).encode()
    call = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=20) as response:
        return json.loads(response.read())


def test_every_script_by_name_is_there() -> None:
    assert all(callable(find_script(name)) for name in SCRIPTS)
    with pytest.raises(NotFound) as caught:
        find_script("ecko")
    assert caught.value.hint == "did you mean 'echo'?"


def test_a_script_answers_by_turn_and_by_task() -> None:
    turns = in_turn(said("one"), said("two"))
    assert turns(_request("a")).text == "one"
    assert [turns(_request("a", "one", "b")).text for _ in range(2)] == ["two", "two"]
    request = ModelRequest(messages=(ModelMessage(role="system", content="# Task: plan\nx"),))
    tasks = by_task({"plan": turns})
    assert (task_of(request), tasks(request).text) == ("plan", "one")
    assert tasks(_request("a")).status == 400


@pytest.mark.parametrize("name", sorted(MOODS))
def test_every_mood_changes_what_is_said_and_how(name: str) -> None:
    script = MOODS[name]()(lambda _: said({"kind": "go", "runs": 2}))
    first = script(_request("What next?"))
    if name == "good":
        assert first == said({"kind": "go", "runs": 2})
    else:
        assert first != said({"kind": "go", "runs": 2})


def test_asked_again_a_malformed_reply_comes_out_right() -> None:
    script = wrong_word(lambda request: said({"kind": request.messages[-1].content}))
    assert script(_request("go")).text == '{"kind": "go-ish"}'
    again = _request("go", '{"kind": "go-ish"}', "That reply does not fit: ...")
    assert script(again).text == '{"kind": "go"}'


def test_the_server_refuses_what_is_no_request() -> None:
    with StandIn(lambda _: said("x")) as server:
        for path, body in (
            ("/chat/completions", {"messages": 3}),
            ("/chat/completions", {"messages": [], "stream": True}),
            ("/embeddings", {}),
        ):
            with pytest.raises(HTTPError) as caught:
                _post(server.url + path, body)
            assert caught.value.code in (400, 404)
            assert "error" in json.loads(caught.value.read())
        assert server.asked == []


def test_a_server_ends_though_an_answer_is_being_delayed() -> None:
    import threading

    sent = threading.Event()

    def script(_request: ModelRequest) -> Answer:
        sent.set()
        return Answer("late", delay_s=600.0)

    with StandIn(script) as server:
        body = {"messages": [{"role": "user", "content": "x"}]}
        asking = threading.Thread(target=_swallowed, args=(server.url, body))
        asking.start()
        assert sent.wait(20)
    asking.join(20)
    assert not asking.is_alive()


def _swallowed(url: str, body: dict[str, Any]) -> None:
    try:
        _post(f"{url}/chat/completions", body)
    except OSError:
        return


def test_as_a_process_it_prints_the_settings_that_use_it() -> None:
    argv = [sys.executable, "-m", "a3r.testing.stand_in", "--script", "echo"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(3)]
        settings = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        reply = _post(f"{settings['A3R_LLM_BASE_URL']}/chat/completions", body)
        process.terminate()
    assert reply["choices"][0]["message"]["content"] == "hello"
    assert settings["A3R_LLM"] == "openai/stand-in"
