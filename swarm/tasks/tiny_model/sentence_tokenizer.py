"""The second tiny model's tokenizer: SentencePiece style BPE (spaces as U+2581, unknown characters as bytes).

Nothing of it equals the first one's: ids, alphabet, markers, template, and how a tool call is written (hermes JSON).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from swarm.tasks.tiny_model.demos import SYSTEM, Dialect

SPECIALS = [
    "<pad>",
    "<s>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<tool_call>",
    "</tool_call>",
]
PAD_ID = SPECIALS.index("<pad>")
BOS_ID = SPECIALS.index("<s>")
EOS_ID = SPECIALS.index("<|end|>")
SPACE = "\u2581"
TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('unknown role ' + message.role) }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content if message.content else '' }}"
    "{% if loop.first and tools %}"
    "{% for tool in tools %}{{ '\\nTool: ' + tool.function.name }}{% endfor %}{% endif %}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}"
    "{% set arguments = call.function.arguments %}"
    '{{ \'<tool_call>{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{ arguments if arguments is string else arguments | tojson }}{{ '}</tool_call>' }}"
    "{% endfor %}{% endif %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
DIALECT = Dialect(
    opening=f"<s><|system|>{SYSTEM}\nTool: calculator<|end|><|user|>Compute ",
    turn="<|end|><|assistant|>",
    call=(
        '<tool_call>{"name": "calculator", "arguments": {"expression": "',
        '"}}</tool_call>',
    ),
    end="<|end|>",
    result="<|tool|>",
)


def build_tokenizer(texts: Iterable[str], pieces: int = 220) -> Tokenizer:
    """Train at most ``pieces`` entries (printable ASCII and merges) on ``texts``; 256 bytes and the markers come before."""
    learner = _shell(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIALS) + pieces,
        special_tokens=SPECIALS,
        initial_alphabet=[chr(code) for code in range(33, 127)] + [SPACE, "\n"],
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    learned = json.loads(learner.to_str())["model"]
    entries = SPECIALS + [f"<0x{byte:02X}>" for byte in range(256)]
    entries += [e for e in sorted(learned["vocab"], key=learned["vocab"].get) if e not in SPECIALS]
    tokenizer = _shell(
        models.BPE(
            vocab={entry: index for index, entry in enumerate(entries)},
            merges=[tuple(merge) for merge in learned["merges"]],
            byte_fallback=True,
        )
    )
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return tokenizer


def _shell(model: models.BPE) -> Tokenizer:
    """What surrounds the merges; digits stay single, nothing is put before the text."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja, as Hugging Face's loaders expect them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "<|end|>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
