"""Sampling beyond temperature: against transformers' own processors, and against the trainer, which must see the same numbers."""

from __future__ import annotations

import json

import pytest
import torch

from swarm.protocol.errors import RequestError
from swarm.server.constraints import Grammars
from swarm.server.engine.running import Running
from swarm.server.engine.shaping import shape
from swarm.server.engine.torch_engine import TorchEngine
from swarm.server.model_files import resolve_model
from swarm.server.ports import (
    GenerateRequest,
    SamplingParams,
    Span,
    SpanSampling,
    TrainBatch,
    TrainRow,
)
from swarm.server.train.adjusting import keep_only, kept_of

TINY = resolve_model("builtin:tiny-calc")
EOS = 2
CASES = {
    "top_p": SamplingParams(top_p=0.8),
    "top_k": SamplingParams(top_k=3),
    "min_p": SamplingParams(min_p=0.2),
    "repetition": SamplingParams(repetition_penalty=1.3),
    "presence and frequency": SamplingParams(presence_penalty=0.7, frequency_penalty=-0.4),
    "bias": SamplingParams(logit_bias={17: 4.0, 21: -100.0}),
    "min_tokens": SamplingParams(min_tokens=6),
    "everything": SamplingParams(
        top_p=0.9, top_k=20, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.2, logit_bias={3: -5.0}
    ),
    "grammar": SamplingParams(grammar=json.dumps({"kind": "regex", "body": "[0-9]{2,4}"})),
}  # fmt: skip


def _running(params: SamplingParams, ids: list[int], *, temperature: float = 1.0) -> Running:
    request = GenerateRequest("r", [5, 6, 7, 6], 16, temperature, [EOS], "k", "e", params=params)
    running = Running(request, 0, 0, 100)
    running.ids = ids
    return running


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p", "repetition"])
def test_each_sampler_agrees_with_transformers(name, temperature):
    transformers = pytest.importorskip("transformers")
    process = transformers.generation.logits_process
    params = CASES[name]
    warp = {
        "top_p": lambda: process.TopPLogitsWarper(params.top_p),
        "top_k": lambda: process.TopKLogitsWarper(params.top_k),
        "min_p": lambda: process.MinPLogitsWarper(params.min_p),
        "repetition": lambda: process.RepetitionPenaltyLogitsProcessor(params.repetition_penalty),
    }[name]()
    for seed in range(20):
        logits = torch.randn(50, generator=torch.Generator().manual_seed(seed)) * 3
        running = _running(params, [8, 9, 8], temperature=temperature)
        seen = torch.tensor([running.request.prompt_ids + running.ids])
        before = logits if name == "repetition" else logits / temperature
        expected = warp(seen, before[None].clone())[0]
        expected = expected / temperature if name == "repetition" else expected
        torch.testing.assert_close(shape(logits, running), expected)


def test_presence_and_frequency_count_the_answer_only():
    running = _running(SamplingParams(presence_penalty=1.0, frequency_penalty=0.5), [8, 9, 8])
    shaped = shape(torch.zeros(12), running)
    assert shaped[8].item() == -1.0 - 2 * 0.5
    assert shaped[9].item() == -1.5
    assert shaped[6].item() == 0.0  # in the prompt


def test_an_end_is_impossible_before_min_tokens_and_with_ignore_eos():
    assert shape(torch.zeros(12), _running(SamplingParams(min_tokens=2), [8]))[EOS] == -torch.inf
    assert shape(torch.zeros(12), _running(SamplingParams(min_tokens=2), [8, 8]))[EOS] == 0
    ignoring = _running(SamplingParams(ignore_eos=True), [8] * 9)
    assert shape(torch.zeros(12), ignoring)[EOS] == -torch.inf


def test_what_was_kept_is_told_in_the_shorter_way():
    allowed = torch.tensor([True, False, True, False, False])
    assert kept_of(allowed) == [0, 2]
    assert kept_of(~allowed) == [-1, 0, 2]
    assert kept_of(torch.ones(5, dtype=torch.bool)) == []
    for mask in (allowed, ~allowed):
        left = keep_only(torch.zeros(5), kept_of(mask))
        assert torch.equal(left > -torch.inf, mask)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("name", CASES)
def test_the_trainer_sees_the_log_probabilities_that_were_sampled_with(
    name, temperature, tiny_config, ask
):
    engine = TorchEngine(tiny_config)
    request = ask("12+34", params=CASES[name], temperature=temperature, max_tokens=12)
    engine.submit(request)
    chunks = []
    while engine.busy:
        chunks += engine.tick()
    (chunk,) = chunks
    assert len(chunk.logprobs) == len(chunk.token_ids) > 0
    assert len(chunk.kept) in (0, len(chunk.token_ids))
    start = len(request.prompt_ids)
    ids = request.prompt_ids + chunk.token_ids
    sampling = SpanSampling(params=CASES[name], kept=chunk.kept, answer_start=start)
    row = TrainRow(
        "g/0/0", "e", ids, [Span(start, len(ids), temperature)], chunk.logprobs, 1.0, 0.1, replays=[sampling]
    )  # fmt: skip
    with_replay = engine.train(TrainBatch(1, 1, [row]))
    assert with_replay.logprob_gap_max < 1e-4
    assert with_replay.moved or name == "grammar"


def test_without_the_replay_the_numbers_differ(tiny_config, ask):
    """The check above can fail: the same tokens as if sampled plainly."""
    engine = TorchEngine(tiny_config)
    request = ask("12+34", params=CASES["everything"], max_tokens=12)
    engine.submit(request)
    chunks = []
    while engine.busy:
        chunks += engine.tick()
    start, ids = len(request.prompt_ids), request.prompt_ids + chunks[0].token_ids
    row = TrainRow("g/0/0", "e", ids, [Span(start, len(ids), 1.0)], chunks[0].logprobs, 1.0, 0.1)
    assert engine.train(TrainBatch(1, 1, [row])).logprob_gap_max > 1e-3


def _answer(engine: TorchEngine, request: GenerateRequest, tokenizer) -> str:
    engine.submit(request)
    chunks = []
    while engine.busy:
        chunks += engine.tick()
    ids = [i for i in chunks[-1].token_ids if i != EOS]
    return tokenizer.decode(ids, skip_special_tokens=False)


SCHEMA = {
    "type": "object",
    "properties": {
        "sum": {"type": "integer", "minimum": 0, "maximum": 99},
        "ok": {"enum": ["yes", "no"]},
    },
    "required": ["sum", "ok"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_follows_its_schema(tiny_config, ask, tokenizer, seed):
    spec = json.dumps({"kind": "json_schema", "body": SCHEMA})
    request = ask(
        "1+2", params=SamplingParams(grammar=spec), max_tokens=120, noise_key=f"schema {seed}"
    )
    value = json.loads(_answer(TorchEngine(tiny_config), request, tokenizer))
    assert set(value) == {"sum", "ok"}
    assert isinstance(value["sum"], int)
    assert value["ok"] in ("yes", "no")


def test_a_choice_and_a_forced_call_are_followed(tiny_config, ask, tokenizer):
    choice = json.dumps({"kind": "choice", "body": ["left", "right"]})
    params = SamplingParams(grammar=choice)
    text = _answer(TorchEngine(tiny_config), ask("1+2", params=params), tokenizer)
    assert text in ("left", "right")
    tools = [{"name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}}]  # fmt: skip
    call = {"kind": "tool_call", "body": {"family": "hermes", "tools": tools, "several": False}}
    forced = ask("1+2", params=SamplingParams(grammar=json.dumps(call)), max_tokens=120)
    text = _answer(TorchEngine(tiny_config), forced, tokenizer)
    body = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    parsed = json.loads(body)
    assert (parsed["name"], parsed["arguments"]["a"]) == ("add", 1)


def test_a_constraint_that_cannot_be_built_is_refused_with_why():
    grammars = Grammars(TINY, 320, [EOS])
    with pytest.raises(RequestError, match="constraint"):
        grammars.check(json.dumps({"kind": "regex", "body": "("}))
    with pytest.raises(RequestError):
        grammars.check(json.dumps({"kind": "json_schema", "body": {"type": "nothing"}}))
    grammars.check(json.dumps({"kind": "regex", "body": "a+"}))
