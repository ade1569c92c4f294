"""Tokenizers of three families: one token a byte, the family's control tokens, and its template (``templates/``)."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from swarm.server.tracking.template import ChatTemplate
from swarm.server.tracking.tokenizer import ChatTokenizer

FOLDER = Path(__file__).parent / "templates"
CONTROL = {
    "qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "qwq": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama3": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "mistral": (
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    ),
}
ENDS = {"qwen3": "<|im_end|>", "qwq": "<|im_end|>", "llama3": "<|eot_id|>", "mistral": "</s>"}
PARSERS = {"qwen3": "qwen", "qwq": "qwen", "llama3": "llama", "mistral": "mistral"}
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Tokens of their own in Qwen's vocabulary, but no control tokens."""


def family_tokenizer(name: str) -> ChatTokenizer:
    """Return the tokenizer of a family."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL[name]])
    if name.startswith("qw"):
        library.add_tokens([AddedToken(text, normalized=False) for text in MARKS])
    source = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    specials = {"bos_token": CONTROL[name][0], "eos_token": ENDS[name]}
    end = int(library.token_to_id(ENDS[name]) or 0)
    return ChatTokenizer(library, ChatTemplate(source, specials), [end], PARSERS[name])
