"""Decoding for byte-level vocabularies (GPT-2's, Llama 3's, Qwen's): the bytes of the tokens, joined and read as UTF-8.

The same text as the ``tokenizers`` library gives, at a tenth of the cost for the few ids that an answer grows by.
"""

from __future__ import annotations

import codecs
from typing import Any

from tokenizers import Tokenizer


class ByteDecoder:
    """Reads ids of one tokenizer. Ids that it does not know are left out, as the library leaves them out."""

    def __init__(self, tokenizer: Tokenizer, alphabet: dict[str, bytes]) -> None:
        """``alphabet``: what byte each printable character of the vocabulary stands for."""
        self._bytes = _Table(tokenizer, alphabet)

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, spec: dict[str, Any], alphabet: dict[str, bytes]
    ) -> ByteDecoder | None:
        """Return the decoder of ``tokenizer`` (whose ``to_str`` is ``spec``); None when it does more than join bytes."""
        plain = (spec.get("decoder") or {}).get("type") == "ByteLevel"
        return cls(tokenizer, alphabet) if plain else None

    def decode(self, ids: list[int]) -> str:
        """Return the text; bytes that are no UTF-8 show as U+FFFD."""
        return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", "replace")

    def stream(self) -> ByteStream:
        """Return a decoder for ids that come little by little."""
        return ByteStream(self._bytes)


class ByteStream:
    """What ``push`` returns joins to ``decode`` of all ids; an incomplete character waits for its end."""

    def __init__(self, table: dict[int, bytes]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: list[int], *, final: bool = False) -> str:
        """Take more ids; ``final`` gives out an incomplete character as U+FFFD."""
        return self._decoder.decode(b"".join(map(self._table.__getitem__, ids)), final)


class _Table(dict[int, bytes]):
    """Bytes by id, filled as they are asked for."""

    def __init__(self, tokenizer: Tokenizer, alphabet: dict[str, bytes]) -> None:
        super().__init__()
        self._tokenizer, self._alphabet = tokenizer, alphabet

    def __missing__(self, token_id: int) -> bytes:
        token = self._tokenizer.id_to_token(token_id) or ""
        alphabet = self._alphabet
        # As the library reads it: a token with any character outside of the alphabet stands for itself.
        inside = all(character in alphabet for character in token)
        raw = b"".join(map(alphabet.__getitem__, token)) if inside else token.encode()
        self[token_id] = raw
        return raw
