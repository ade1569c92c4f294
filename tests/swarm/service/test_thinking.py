"""Thinking, told apart from the answer for a model whose template knows it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from swarm.protocol.config import ModelConfig
from swarm.server.model_files import resolve_model
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet
from swarm.testing.server_fixture import take, toy_service

USER = {"role": "user", "content": "Compute 1+2."}
OPENED = "{% if add_generation_prompt %}{{ '<think>\\n' if open }}{% endif %}"


@pytest.fixture
def thinker(tmp_path: Path) -> Path:
    """The tiny model with a template that knows thinking, and opens it when it is told so."""
    folder = tmp_path / "thinker"
    shutil.copytree(resolve_model("builtin:tiny-calc"), folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text(encoding="utf-8") + OPENED, encoding="utf-8")
    return folder


async def answered(
    tmp_path: Path, make_config: Any, model: ModelConfig, text: str, **keys: Any
) -> Any:
    fleet = ToyFleet(lambda _request: text)
    async with toy_service(tmp_path / "state", make_config(model=model), fleet=fleet) as service:
        episode = service.episode_for_key((await take(service, "a")).api_key)
        call = ChatCall(messages=[USER], **keys)
        whole = await service.answer(episode, call)
        pieces = [d async for d in service.answer_stream(episode, call)]
        streamed = pieces[-1].final
        assert streamed is not None
        assert streamed.reasoning == whole.choices[0].reasoning
        assert "".join(d.reasoning for d in pieces) == (streamed.reasoning or "")
        assert "".join(d.text for d in pieces) == streamed.message["content"]
        assert whole.reasoning_tokens == streamed.reasoning_tokens
        return whole.choices[0], service.trace(episode.episode_id, calls=True).calls[0]


@pytest.mark.parametrize(("opened", "mark"), [(False, "<think>\n"), (True, "")])
async def test_thinking_goes_out_apart_whoever_opened_it(
    tmp_path, make_config, thinker, opened, mark
):
    model = ModelConfig(path=str(thinker))
    text = f"{mark}hm\n</think>\n\n3"
    reply, record = await answered(
        tmp_path, make_config, model, text, template_kwargs={"open": opened}
    )
    assert (reply.reasoning, reply.message["content"]) == ("hm", "3")
    assert 0 < reply.reasoning_tokens < reply.completion_tokens - 1
    assert record.reply["reasoning_content"] == "hm"


async def test_with_reasoning_off_thinking_stays_text(tmp_path, make_config, thinker):
    model = ModelConfig(path=str(thinker), reasoning="off")
    text = "<think>\nhm\n</think>\n\n3"
    reply, _ = await answered(tmp_path, make_config, model, text)
    assert (reply.reasoning, reply.message["content"]) == (None, text)
    assert reply.reasoning_tokens == 0


async def test_a_model_that_knows_no_thinking_has_none(tmp_path, make_config):
    text = "<think>hm</think>3"
    reply, _ = await answered(tmp_path, make_config, ModelConfig(), text)
    assert (reply.reasoning, reply.message["content"]) == (None, text)


async def test_an_answer_that_is_continued_inside_its_thinking_stays_thinking(
    tmp_path, make_config, thinker
):
    fleet = ToyFleet(lambda _request: "m</think>3")
    config = make_config(model=ModelConfig(path=str(thinker)))
    async with toy_service(tmp_path / "state", config, fleet=fleet) as service:
        episode = service.episode_for_key((await take(service, "a")).api_key)
        for begun, reasoning, content in (
            ("<think>\nh", "m", "3"),
            ("<think>h</think>", None, "m</think>3"),
            ("It is ", None, "m</think>3"),
        ):
            messages = [USER, {"role": "assistant", "content": begun}]
            call = ChatCall(messages=messages, continue_final=True)
            reply = (await service.answer(episode, call)).choices[0]
            assert (reply.reasoning, reply.message["content"]) == (reasoning, content)
