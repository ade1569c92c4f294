"""The tokenizer and chat template of a Hugging Face folder, without transformers.

Knows text and ids; nothing of episodes. Encoding adds no special tokens: the template writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from swarm.protocol.errors import ConfigError, RequestError
from swarm.server.constraints import Grammars
from swarm.server.model_files import image_tokens, with_text_half
from swarm.server.pictures.parts import for_template
from swarm.server.tracking.byte_decoder import ByteDecoder
from swarm.server.tracking.guard import MARK, SpecialGuard
from swarm.server.tracking.reasoning import ThinkMarks
from swarm.server.tracking.render_cache import RenderCache
from swarm.server.tracking.template import ChatTemplate

_PIECE_LIMIT = 2048
_PART = 1 << 14
"""Characters that ``count_up_to`` encodes at once."""
_CACHE_LIMIT = 50_000
_SPLIT_AT_MARK = re.compile(rf"(\S*{MARK}\S*)")
"""Without known boundaries only the word around a mark is encoded apart."""
_HINT = "point model.path at a folder in Hugging Face format (config.json, tokenizer.json, chat_template.jinja)"


class ChatTokenizer:
    """Text to ids and back. All methods are pure; caches are bounded and invisible."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        eos_ids: list[int],
        tool_parser: str,
        grammars: Grammars | None = None,
        vocab_size: int = 0,
        image_token: int | None = None,
    ) -> None:
        """Use ``from_folder``; this takes the parts."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._template = template
        self.eos_ids = eos_ids
        """Sampling one of these ends an answer."""
        self.eos_texts = {i: tokenizer.decode([i], skip_special_tokens=False) for i in eos_ids}
        self.tool_parser = tool_parser
        """Name of the tool-call parser that the model's config asks for, else ``hermes``."""
        self.vocab_size = vocab_size or tokenizer.get_vocab_size(with_added_tokens=True)
        """Ids are below this."""
        timely = template.mentions("strftime_now")
        self.renders: RenderCache[tuple[list[int], int]] | None = None if timely else RenderCache()
        """Prompts rendered lately; None: the template writes the date."""
        self.grammars = grammars
        """Constraints on answers of this model; None: there are none (parts without a folder)."""
        self.think_marks = ThinkMarks() if template.mentions(ThinkMarks.opening) else None
        """How the model marks its thinking; None: its template knows no thinking, and nothing is told apart."""
        added = tokenizer.get_added_tokens_decoder()
        self._added = {i: token.content for i, token in added.items()}
        self.control_texts = tuple(
            token.content for token in added.values() if token.special and len(token.content) > 1
        )
        """How the model's control tokens read."""
        self.image_token = image_token
        """Stands for one picture in a prompt; None: the model reads text only."""
        image_text = "" if image_token is None else self._added.get(image_token, "")
        controls = {*self.control_texts, *filter(None, [image_text])}
        self._guard = SpecialGuard(sorted(controls), image_text)
        self._always_parts = image_token is not None and not _shows_plain_text(template)
        spec = json.loads(tokenizer.to_str())
        self._split = _boundary_pattern(spec)
        self._bytes_of = _byte_reader(spec)
        self.byte_decoder = ByteDecoder.of(tokenizer, spec, _byte_alphabet())
        """The quick way to read ids; None: this vocabulary has none."""
        self._pieces: dict[str, list[int]] = {}
        self._token_bytes: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, path: Path | str) -> ChatTokenizer:
        """Read ``tokenizer.json``, ``tokenizer_config.json``, the chat template and the end-of-sequence ids.

        Raises:
            ConfigError: a file is missing or cannot be parsed; no chat template; no end-of-sequence id.
        """
        folder = Path(path)
        config = with_text_half(_read_json(folder / "config.json", required=True))
        settings = _read_json(folder / "tokenizer_config.json")
        generation = _read_json(folder / "generation_config.json")
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as err:  # the library raises bare Exception
            raise ConfigError(
                f"{str(folder / 'tokenizer.json')!r} cannot be loaded: {err}", hint=_HINT
            ) from err
        eos_ids = _eos_ids(tokenizer, config, generation, settings)
        if not eos_ids:
            raise ConfigError(
                f"the model in {str(folder)!r} names no end-of-sequence token",
                hint="set eos_token_id in config.json",
            )
        template = ChatTemplate.from_folder(folder, settings)
        parser = str(config.get("a3r_tool_parser", "hermes"))
        vocab_size = int(config.get("vocab_size") or tokenizer.get_vocab_size())
        grammars = Grammars(folder, vocab_size, eos_ids)
        image_token = _image_token(tokenizer, config)
        return cls(tokenizer, template, eos_ids, parser, grammars, vocab_size, image_token)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        template_kwargs: dict[str, Any],
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Write the conversation as the model's template does; control tokens that a message spells carry ``guard.MARK``.

        Raises:
            RequestError: the template refuses these messages.
        """
        guarded = self._guard.messages(messages)
        if self.image_token is not None:
            guarded = for_template(guarded, always_parts=self._always_parts)
        return self._template.render(
            guarded,
            self._guard.tools(tools),
            template_kwargs,
            add_generation_prompt=add_generation_prompt,
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text`` (a fresh list), special tokens in it recognised unless they carry ``guard.MARK``, none added.

        Special tokens cut the text into pieces that tokenise independently; repeated pieces come from a cache.
        """
        if MARK in text:
            return self._encode_guarded(text)
        if self._split is None:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        ids: list[int] = []
        pieces = self._pieces
        for piece in self._split.split(text):
            if piece:
                known = pieces.get(piece)
                ids += self._encode_piece(piece) if known is None else known
        return ids

    def _encode_guarded(self, text: str) -> list[int]:
        """Encode piece by piece; one that holds a mark is plain text, whatever it spells."""
        pieces = (
            self._split.split(text) if self._split is not None else re.split(_SPLIT_AT_MARK, text)
        )
        ids: list[int] = []
        for piece in pieces:
            if MARK in piece:
                self._tokenizer.encode_special_tokens = True
                try:
                    plain = piece.replace(MARK, "")
                    ids += self._tokenizer.encode(plain, add_special_tokens=False).ids
                finally:
                    self._tokenizer.encode_special_tokens = False
            elif piece:
                ids += self._encode_piece(piece)
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        ids = self._tokenizer.encode(piece, add_special_tokens=False).ids
        if len(piece) <= _PIECE_LIMIT:
            if len(self._pieces) >= _CACHE_LIMIT:
                self._pieces.clear()
            self._pieces[piece] = ids
        return ids

    def decode(self, ids: list[int], *, skip_special: bool = False) -> str:
        """Return the text of ``ids``; incomplete UTF-8 shows as U+FFFD."""
        if self.byte_decoder is not None and not skip_special:
            return self.byte_decoder.decode(ids)
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special)

    def answer_text(self, ids: list[int]) -> str:
        """Text of a sampled answer: every token as it reads, except the end-of-sequence token that ended it."""
        return self.decode(ids[:-1] if ids and ids[-1] in self.eos_texts else ids)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token; those of a sequence join to its text (before any space stripping of the decoder)."""
        known = self._token_bytes.get(token_id)
        if known is None:
            added = self._added.get(token_id)
            text = self._tokenizer.id_to_token(token_id) or ""
            known = self._bytes_of(text) if added is None else added.encode()
            self._token_bytes[token_id] = known
        return known

    def count_up_to(self, text: str, limit: int) -> int:
        """Count the tokens of ``text``, but stop soon after ``limit``: megabytes cost no more than what fits.

        Encoded part by part, so the count may be a few too high for each 16,384 characters.
        """
        count = start = 0
        while start < len(text) and count <= limit:
            end = start + _PART
            space = text.rfind(" ", start + _PART // 2, end) if end < len(text) else -1
            end = space if space > start else end
            count += len(self._tokenizer.encode(text[start:end], add_special_tokens=False).ids)
            start = end
        return count

    def stream(self) -> TextStream:
        """Return a fresh incremental decoder for one answer."""
        return TextStream(self)


class TextStream:
    """Turns ids into text as they come; the pieces of ``push`` and ``finish`` join to ``answer_text`` of all ids."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._done = 0  # ids whose text is out
        self._context = 0  # ids before this no longer change how later ones read
        quick = tokenizer.byte_decoder
        self._bytes = None if quick is None else quick.stream()

    def push(self, ids: Iterable[int]) -> str:
        """Add ids and return the text that is certain now; "" while a character is incomplete or an end token may be the last."""
        self._ids += ids
        end = len(self._ids)
        if end and self._ids[-1] in self._tokenizer.eos_texts:
            end -= 1
        return self._text_up_to(end, final=False)

    def finish(self) -> str:
        """Return what is left, incomplete characters as U+FFFD."""
        end = len(self._ids)
        if end and self._ids[-1] in self._tokenizer.eos_texts:
            end -= 1
        return self._text_up_to(end, final=True)

    def _text_up_to(self, end: int, *, final: bool) -> str:
        if self._bytes is not None:
            fresh, self._done = self._ids[self._done : end], max(end, self._done)
            return self._bytes.push(fresh, final=final)
        if end <= self._done:
            return ""
        old = self._tokenizer.decode(self._ids[self._context : self._done])
        new = self._tokenizer.decode(self._ids[self._context : end])
        if new.endswith("\ufffd") and not final:
            return ""
        self._context, self._done = self._done, end
        return new[len(old) :]


def _read_json(path: Path, *, required: bool = False) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        if not required:
            return {}
        raise ConfigError(f"{str(path)!r} does not exist", hint=_HINT) from err
    except (OSError, ValueError) as err:
        raise ConfigError(f"{str(path)!r} cannot be read: {err}", hint=_HINT) from err


def _image_token(tokenizer: Tokenizer, config: dict[str, Any]) -> int | None:
    """The id that stands for a picture; None when the tokenizer knows none."""
    known = (token for token in image_tokens(config) if tokenizer.id_to_token(token) is not None)
    return next(known, None)


def _shows_plain_text(template: ChatTemplate) -> bool:
    """Whether a template writes contents that are plain text: some of models with pictures read lists only, and drop others."""
    said = "PLAINTEXT"
    try:
        text = template.render(
            [{"role": "user", "content": said}], [], {}, add_generation_prompt=False
        )
    except RequestError:
        return False
    return said in text


def _eos_ids(
    tokenizer: Tokenizer,
    config: dict[str, Any],
    generation: dict[str, Any],
    settings: dict[str, Any],
) -> list[int]:
    """Ids from generation_config.json, config.json and the tokenizer's eos_token, each once, in that order."""
    found: list[int] = []
    for source in (generation, config):
        value = source.get("eos_token_id")
        found += value if isinstance(value, list) else [] if value is None else [value]
    eos = settings.get("eos_token")
    text = eos.get("content") if isinstance(eos, dict) else eos
    by_name = tokenizer.token_to_id(text) if text else None
    if by_name is not None:
        found.append(by_name)
    return list(dict.fromkeys(found))


def _boundary_pattern(spec: dict[str, Any]) -> re.Pattern[str] | None:
    """Pattern that splits a text at its special tokens, or None when the pieces would not tokenise independently.

    Exact because the library itself first splits at added tokens that are not normalised, leftmost and longest first.
    Not so when a token eats the spaces beside it, or when the pre-tokenizer treats the start of the text apart.
    """
    added = spec.get("added_tokens") or []
    plain = [
        t["content"]
        for t in added
        if not (t["normalized"] or t["lstrip"] or t["rstrip"] or t["single_word"])
    ]
    others = [t["content"] for t in added if t["content"] not in plain]
    overlap = any(a in b for a in plain for b in others)
    first_differs = '"prepend_scheme": "first"' in json.dumps(spec.get("pre_tokenizer"))
    if not plain or overlap or first_differs:
        return None
    longest_first = sorted(plain, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")


def _byte_reader(spec: dict[str, Any]) -> Callable[[str], bytes]:
    """How a vocabulary entry reads as bytes: byte-level alphabets map each character; others use U+2581 and ``<0x..>``."""
    if '"ByteLevel"' in json.dumps([spec.get("decoder"), spec.get("pre_tokenizer")]):
        table = _byte_alphabet()
        return lambda token: b"".join(table.get(c) or c.encode() for c in token)

    def read(token: str) -> bytes:
        hexed = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
        return bytes.fromhex(hexed.group(1)) if hexed else token.replace("\u2581", " ").encode()

    return read


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's printable stand-ins for the 256 bytes (openai/gpt-2, encoder.py, bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): bytes([b]) for b in printable}
    rest = [b for b in range(256) if b not in set(printable)]
    table.update({chr(256 + n): bytes([b]) for n, b in enumerate(rest)})
    return table
