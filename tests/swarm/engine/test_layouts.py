"""The layouts beside Llama's: Qwen2 and Qwen3, against transformers and between trainer and sampler."""

import json

import pytest
import torch

from swarm.protocol.errors import ConfigError
from swarm.server.engine.decoder import Decoder, Part
from swarm.server.engine.model import Llama, LlamaConfig
from swarm.server.engine.sampler import Sampler
from swarm.server.engine.weights import load_model, save_weights
from swarm.server.model_files import resolve_model
from swarm.server.ports import GenerateRequest
from swarm.server.tracking.tokenizer import ChatTokenizer

QUESTION = (
    "<s><|system|>Use the tool to add two numbers.\nTool: calculator<|end|>"
    "<|user|>Compute %s.<|end|><|assistant|>"
)

LAYOUTS = {
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen2-tied": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "tie_word_embeddings": True,
    },
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "qwen3-biases": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": True,
    },
}


@pytest.fixture(params=LAYOUTS)
def shaken(request, tmp_path, small_config):
    """A model of each layout whose every weight, norms and biases too, differs from its start."""
    # Qwen2's transformers class has no head size of its own: 24 / 4.
    config = small_config | {"head_dim": 6, "use_sliding_window": False} | LAYOUTS[request.param]
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    torch.manual_seed(1)
    model = Llama(LlamaConfig.from_dict(config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    save_weights(model, tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("default")  # the other library's own warnings are not ours to fail on
def test_logits_equal_those_of_transformers(shaken):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(shaken, dtype=torch.float32)
    ids = torch.randint(0, 50, (3, 17))
    with torch.no_grad():
        torch.testing.assert_close(
            load_model(shaken)(ids), theirs(ids).logits, atol=1e-5, rtol=1e-4
        )


def test_the_sampler_sees_the_logits_of_the_trainer(shaken):
    model = load_model(shaken)
    decoder = Decoder(model, slots=3, capacity=48)
    rows = torch.randint(0, 50, (2, 12)).tolist()
    got = [decoder.extend([Part([1, 2], [0, 0], rows[0][:9] + rows[1][:9], [9, 9])])[:2]]
    got += [
        decoder.extend([Part([1, 2], [at, at], [row[at] for row in rows])])[:2]
        for at in range(9, 12)
    ]
    with torch.no_grad():
        expected = model(torch.tensor(rows))[:, 8:]
    torch.testing.assert_close(torch.stack(got, 1), expected, atol=1e-5, rtol=1e-4)


def test_the_head_norms_learn(shaken):
    model = load_model(shaken)
    model(torch.randint(0, 50, (2, 9))).logsumexp(-1).sum().backward()
    norms = {n: p.grad for n, p in model.named_parameters() if "q_norm" in n or "k_norm" in n}
    assert len(norms) == (4 if model.config.qk_norm else 0)
    assert all(grad is not None and bool((grad != 0).any()) for grad in norms.values())


@pytest.mark.parametrize(
    "change", [{"use_sliding_window": True}, {"layer_types": ["sliding_attention"] * 2}]
)
def test_sliding_windows_are_refused(small_config, change):
    with pytest.raises(ConfigError, match="sliding") as caught:
        LlamaConfig.from_dict(small_config | {"model_type": "qwen3"} | change)
    assert caught.value.hint


def test_published_defaults_hold_where_a_config_is_silent(small_config):
    silent = {
        k: v for k, v in small_config.items() if k not in ("head_dim", "max_position_embeddings")
    }
    two = LlamaConfig.from_dict(silent | {"model_type": "qwen2"})
    three = LlamaConfig.from_dict(silent | {"model_type": "qwen3"})
    assert (two.head_dim, two.attention_bias, two.output_bias, two.qk_norm) == (
        6,
        True,
        False,
        False,
    )
    assert (three.head_dim, three.attention_bias, three.qk_norm) == (128, False, True)
    assert two.max_position_embeddings == three.max_position_embeddings == 32768


@pytest.mark.filterwarnings("default")  # the other library's own warnings are not ours to fail on
def test_the_shipped_qwen_model_is_read_by_transformers_with_the_same_logits():
    transformers = pytest.importorskip("transformers")
    folder = resolve_model("builtin:tiny-calc-qwen")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([ChatTokenizer.from_folder(folder).encode(QUESTION % "37+48")])
    with torch.no_grad():
        torch.testing.assert_close(
            load_model(folder)(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4
        )


def test_with_head_norms_too_tokens_do_not_depend_on_who_shares_the_batch():
    folder = resolve_model("builtin:tiny-calc-qwen")
    model, tokenizer = load_model(folder), ChatTokenizer.from_folder(folder)
    requests = [
        GenerateRequest(
            request_id=f"{a}+{b}",
            prompt_ids=tokenizer.encode(QUESTION % f"{a}+{b}"),
            max_tokens=20,
            temperature=1.0,
            stop_token_ids=tokenizer.eos_ids,
            noise_key=f"{a}/{b}",
            affinity=f"{a}/{b}",
        )
        for a in range(10, 16)
        for b in (7, 48, 923)
    ]
    together = sample(Sampler(model, tokenizer.decode), requests)
    for request in requests[::5]:
        alone = sample(Sampler(model, tokenizer.decode), [request])
        assert alone[request.request_id] == together[request.request_id]


def sample(sampler, requests):
    """Token ids of each request, all sampled together."""
    found = {r.request_id: [] for r in requests}
    for request in requests:
        sampler.submit(request)
    while sampler.busy:
        for chunk in sampler.tick():
            found[chunk.request_id] += chunk.token_ids
    return found
