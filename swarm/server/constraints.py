"""Constraints on the text of an answer, token by token, through llguidance (imported when the first one is asked for).

A specification is the JSON of ``{"kind", "body"}`` as ``SamplingParams.grammar`` carries it. The front checks one before it is
sent, the engine follows it; no torch here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swarm.protocol.errors import ConfigError, RequestError

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KNOWN_LIMIT = 1024
HINT = "Simplify the schema or grammar; see the documentation of llguidance for what it supports."


class Grammars:
    """Makes matchers for one model. Not thread-safe."""

    def __init__(self, folder: Path, vocab_size: int, eos_ids: list[int]) -> None:
        """Read nothing yet; ``folder`` holds tokenizer.json."""
        self._folder, self._vocab_size, self._eos_ids = folder, vocab_size, eos_ids
        self._tokenizer: Any = None
        self._added: dict[str, int] = {}
        self._good: set[str] = set()

    @property
    def vocab_size(self) -> int:
        """Token ids of the model are below it."""
        return self._vocab_size

    def matcher(self, specification: str) -> Matcher:
        """Return a matcher at the beginning of an answer.

        Raises:
            RequestError: the specification is no grammar that the library takes.
            ConfigError: the library is not installed.
        """
        llguidance = _library()
        if self._tokenizer is None:
            self._load(llguidance)
        try:
            grammar = self._grammar(llguidance.LLMatcher, json.loads(specification))
            matcher = llguidance.LLMatcher(self._tokenizer, grammar)
        except ValueError as error:
            raise _refused(str(error)) from None
        if matcher.is_error():
            raise _refused(matcher.get_error())
        return Matcher(matcher)

    def check(self, specification: str) -> None:
        """Raise like ``matcher``; what was found good is remembered."""
        if specification in self._good:
            return
        self.matcher(specification)
        if len(self._good) >= KNOWN_LIMIT:
            self._good.clear()
        self._good.add(specification)

    def lark(self, specification: str) -> str:
        """Return the constraint as a grammar in llguidance's dialect of Lark, for an engine that builds its own matchers.

        Raises:
            ConfigError: the library is not installed.
        """
        if self._tokenizer is None:
            self._load(_library())
        spec = json.loads(specification)
        if spec["kind"] == "lark":
            return spec["body"]
        return f"start: {self._rule(spec['kind'], spec['body'])}\n"

    def _load(self, llguidance: Any) -> None:
        text = (self._folder / "tokenizer.json").read_text(encoding="utf-8")
        eos = self._eos_ids[0] if self._eos_ids else None
        self._tokenizer = llguidance.LLTokenizer(text, n_vocab=self._vocab_size, eos_token=eos)
        added = json.loads(text).get("added_tokens") or []
        self._added = {token["content"]: token["id"] for token in added}

    def _grammar(self, library: Any, spec: dict[str, Any]) -> str:
        kind, body = spec["kind"], spec["body"]
        if kind == "json_object":
            return library.grammar_from_json_schema(_compact({"type": "object"}))
        if kind == "json_schema":
            return library.grammar_from_json_schema(_compact(body))
        if kind == "regex":
            return library.grammar_from_regex(body)
        if kind == "lark":
            return library.grammar_from_lark(body)
        return library.grammar_from_lark(f"start: {self._rule(kind, body)}\n")

    def _rule(self, kind: str, body: Any) -> str:
        """Return the right-hand side of a Lark rule (llguidance's dialect: ``%json`` embeds a schema, ``<[id]>`` is a token)."""
        if kind == "json_object":
            return f"%json {_compact({'type': 'object'})}"
        if kind == "json_schema":
            return f"%json {_compact(body)}"
        if kind == "regex":
            return f"/{body.replace('/', chr(92) + '/')}/"
        if kind == "choice":
            return " | ".join(json.dumps(choice) for choice in body)
        if kind == "tool_call":
            return self._tool_call(body)
        if kind == "any_of":
            return " | ".join(f"({self._rule(one['kind'], one['body'])})" for one in body)
        raise ValueError(f"a constraint of kind {kind!r} cannot be combined")

    def _tool_call(self, body: dict[str, Any]) -> str:
        """How the family writes a call, as its parser reads it."""
        family, several = body["family"], body["several"]
        key = "parameters" if family == "llama" else "arguments"
        call = {"anyOf": [_call_schema(tool, key) for tool in body["tools"]]}
        opening, closing = self._mark(OPEN), self._mark(CLOSE)
        if family == "expression":
            return f"{opening} /[^<]{{1,64}}/ {closing}"
        if family in ("hermes", "qwen"):
            one = f'{opening} "\\n" %json {_compact(call)} "\\n" {closing}'
            return f'{one} ("\\n" {one})*' if several else one
        schema = call if not several else {"type": "array", "items": call, "minItems": 1}
        if family == "mistral":
            return f"{self._mark('[TOOL_CALLS]')} %json {_compact(schema)}"
        return f"%json {_compact(call)}"

    def _mark(self, text: str) -> str:
        """A mark is one token where the tokenizer has one, else its characters."""
        known = self._added.get(text)
        return json.dumps(text) if known is None else f"<[{known}]>"


class Matcher:
    """Follows one answer."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def allowed(self) -> bytes:
        """Return which tokens may come next as a bit mask, token 0 in the lowest bit of the first byte."""
        return self._matcher.compute_bitmask()

    def consume(self, token: int) -> None:
        """Take a sampled token; the end token ends the answer."""
        self._matcher.consume_token(token)


def _compact(schema: dict[str, Any]) -> str:
    """A schema whose values are written without spare spaces: a small model would else fill its answer with them."""
    return json.dumps(schema | {"x-guidance": {"whitespace_flexible": False}})


def _call_schema(tool: dict[str, Any], key: str) -> dict[str, Any]:
    parameters = tool["parameters"] or {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool["name"]}, key: parameters},
        "required": ["name", key],
        "additionalProperties": False,
    }


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise ConfigError(
            "Constrained answers need llguidance, which is not installed.",
            hint="Install it with: pip install 'a3r[train]'",
        ) from error
    return llguidance


def _refused(why: str) -> RequestError:
    first = why.strip().splitlines()[0] if why.strip() else "unknown"
    return RequestError(f"The constraint on the answer cannot be built: {first}", hint=HINT)
