"""The quick way to read ids says exactly what the library says, whole and little by little."""

from __future__ import annotations

import random

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from swarm.server.model_files import resolve_model
from swarm.server.tracking.byte_decoder import ByteDecoder
from swarm.server.tracking.tokenizer import ChatTokenizer, _byte_alphabet


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """All 256 bytes, two merges, and added tokens with letters inside and outside of the alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(alphabet)}
    vocab |= {"Ã©": len(vocab), "ðŁ": len(vocab) + 1}
    made = Tokenizer(models.BPE(vocab, [("Ã", "©"), ("ð", "Ł")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    made.add_tokens([AddedToken("<a b>"), AddedToken("été"), AddedToken("日本")])
    return made


@pytest.fixture(scope="module")
def decoder(tokenizer: Tokenizer) -> ByteDecoder:
    found = ByteDecoder.of(tokenizer, {"decoder": {"type": "ByteLevel"}}, _byte_alphabet())
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(200))
def test_random_ids_read_as_the_library_reads_them(
    tokenizer: Tokenizer, decoder: ByteDecoder, seed: int
) -> None:
    draw = random.Random(seed)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = [draw.randrange(size + 2) for _ in range(draw.randrange(40))]  # two ids that nothing has
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    assert decoder.decode(ids) == whole
    stream, at, said = decoder.stream(), 0, ""
    while at < len(ids):
        step = draw.randrange(1, 4)
        said += stream.push(ids[at : at + step])
        at += step
    assert said + stream.push([], final=True) == whole


def test_no_character_is_split_on_the_way(tokenizer: Tokenizer, decoder: ByteDecoder) -> None:
    text = "für 日本 🙂!"
    stream = decoder.stream()
    pieces = [stream.push([i]) for i in tokenizer.encode(text).ids]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_decoder_that_does_more_is_left_to_the_library() -> None:
    quick = {
        name: ChatTokenizer.from_folder(resolve_model(name)).byte_decoder is not None
        for name in ("builtin:tiny-calc", "builtin:tiny-calc-qwen")
    }
    assert quick == {"builtin:tiny-calc": True, "builtin:tiny-calc-qwen": False}
