from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from swarm.protocol.errors import ConfigError, RequestError
from swarm.server.model_files import resolve_model
from swarm.server.tracking.template import ChatTemplate
from swarm.server.tracking.tokenizer import ChatTokenizer

FOLDER = resolve_model("builtin:tiny-calc")
TOKENIZER = ChatTokenizer.from_folder(FOLDER)
PLAIN = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
SPECIALS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<|endoftext|>"]
texts = st.lists(st.one_of(st.text(max_size=12), st.sampled_from(SPECIALS)), max_size=8).map(
    "".join
)


@given(texts)
def test_encoding_by_cached_pieces_equals_encoding_the_whole_text(text: str) -> None:
    assert TOKENIZER.encode(text) == PLAIN.encode(text, add_special_tokens=False).ids


@given(texts)
def test_any_text_with_emoji_and_foreign_letters_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert b"".join(map(TOKENIZER.token_bytes, ids)) == text.encode()


@given(texts, st.booleans())
def test_a_stream_of_tokens_joins_to_the_answer_text(text: str, ended: bool) -> None:
    ids = TOKENIZER.encode(text.replace("<|im_end|>", "")) + [TOKENIZER.eos_ids[0]] * ended
    stream = TOKENIZER.stream()
    pieces = [stream.push([i]) for i in ids] + [stream.finish()]
    assert "".join(pieces) == TOKENIZER.answer_text(ids)


def test_a_character_cut_in_the_middle_is_held_back_until_it_is_whole_or_the_stream_ends() -> None:
    ids = TOKENIZER.encode("é🙂")
    assert len(ids) == 6  # one token a byte
    stream = TOKENIZER.stream()
    assert [stream.push([i]) for i in ids] == ["", "é", "", "", "", "🙂"]
    cut = TOKENIZER.stream()
    assert cut.push(ids[:4]) == "é"
    assert cut.finish() == "\ufffd"


def test_the_encoded_list_is_the_callers_own() -> None:
    first = TOKENIZER.encode("12")
    first.append(99)
    assert TOKENIZER.encode("12") == first[:-1]


def test_the_model_folder_names_its_end_token_and_tool_parser() -> None:
    assert TOKENIZER.eos_ids == [2]
    assert TOKENIZER.tool_parser == "expression"
    assert TOKENIZER.answer_text([*TOKENIZER.encode("85"), 2]) == "85"


def test_the_template_writes_messages_tool_calls_and_the_generation_prompt() -> None:
    call = {"function": {"name": "calculator", "arguments": {"expression": "3+4"}}}
    messages = [
        {"role": "user", "content": "Compute 3+4."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "7"},
    ]
    assert TOKENIZER.render(messages, [], {}) == (
        "<|im_start|>user\nCompute 3+4.<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>3+4</tool_call><|im_end|>\n"
        "<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_folder_without_a_needed_file_is_refused_with_a_hint(
    tmp_path: Path, missing: str
) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / name, tmp_path / name)
    (tmp_path / missing).unlink()
    with pytest.raises(ConfigError) as caught:
        ChatTokenizer.from_folder(tmp_path)
    assert caught.value.hint


def test_end_tokens_come_from_generation_config_as_well(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(FOLDER / name, tmp_path / name)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    assert ChatTokenizer.from_folder(tmp_path).eos_ids == [0, 2]


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>"})


def test_templates_have_hugging_faces_helpers() -> None:
    source = "{{ bos_token }}{{ tools | tojson }}{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}{{ strftime_now('%Y') | length }}"
    messages = [{"role": "user", "content": "<é>"}, {"role": "user", "content": "no"}]
    text = _template(source).render(messages, [{"a": "é<"}], {}, add_generation_prompt=True)
    assert text == '<s>[{"a": "é<"}]<é>4'


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
    ],
)
def test_a_template_that_raises_or_leaves_its_sandbox_is_a_bad_request(source: str) -> None:
    with pytest.raises(RequestError) as caught:
        _template(source).render([], [], {}, add_generation_prompt=True)
    assert "chat template" in caught.value.message


def test_a_template_that_does_not_compile_is_a_bad_config() -> None:
    with pytest.raises(ConfigError):
        _template("{% for x in %}")


@pytest.mark.parametrize(
    "text", ["", "12+3 " * 50, "Grüße 你好 🎲" * 9, "<|im_end|><tool_call>" * 4]
)
def test_a_text_that_fits_is_counted_exactly(tokenizer, text):
    assert tokenizer.count_up_to(text, 10_000) == len(tokenizer.encode(text))


@pytest.mark.parametrize("text", ["a" * 5_000_000, "12 34 " * 1_000_000, "\n" * 5_000_000])
def test_counting_stops_soon_after_the_limit(tokenizer, text):
    assert 100 < tokenizer.count_up_to(text, 100) <= 100 + (1 << 14)
