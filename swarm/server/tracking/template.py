"""A model's chat template: sandboxed Jinja with the helpers that Hugging Face's templates expect."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from swarm.protocol.errors import ConfigError, RequestError

TEMPLATE_FILE = "chat_template.jinja"
_OF_DICTS = frozenset(dir(dict))
_REFUSALS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template raises on values that it was not written for; all of them come from the request."""
_SPECIALS = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplate:
    """Renders messages; compiled once."""

    def __init__(self, source: str, specials: dict[str, str]) -> None:
        """``specials`` are the texts of ``bos_token`` and the like, which templates name.

        Raises:
            ConfigError: the source is not a template.
        """
        try:
            self._template = _environment().from_string(source)
            # Jinja chains two mappings here and walks through both on each rendering.
            self._template.globals = dict(self._template.globals)
        except jinja2.TemplateError as err:
            raise ConfigError(
                f"the chat template does not compile: {err}",
                hint=f"repair {TEMPLATE_FILE} in the model's folder",
            ) from err
        self._specials = specials
        self._source = source

    @classmethod
    def from_folder(cls, folder: Path, settings: dict[str, Any]) -> ChatTemplate:
        """Take ``chat_template.jinja``, else ``chat_template`` of tokenizer_config.json.

        Raises:
            ConfigError: the folder has no chat template.
        """
        file = folder / TEMPLATE_FILE
        source = (
            file.read_text(encoding="utf-8") if file.exists() else settings.get("chat_template")
        )
        if isinstance(source, list):  # named templates: {"name", "template"}
            source = next((t["template"] for t in source if t.get("name") == "default"), None)
        if not isinstance(source, str):
            raise ConfigError(
                f"the model in {str(folder)!r} has no chat template",
                hint=f"add {TEMPLATE_FILE}, or serve an instruction-tuned model",
            )
        specials = {name: _text(settings.get(name)) for name in _SPECIALS}
        return cls(source, {name: text for name, text in specials.items() if text})

    def mentions(self, text: str) -> bool:
        """Whether the template's source has ``text`` in it."""
        return text in self._source

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        template_kwargs: dict[str, Any],
        *,
        add_generation_prompt: bool,
    ) -> str:
        """Return the text of the conversation.

        Raises:
            RequestError: the template raised, for example on an unknown role or a wrong order of roles.
        """
        variables = {**self._specials, **template_kwargs}
        variables.update(
            messages=messages, tools=tools or None, add_generation_prompt=add_generation_prompt
        )
        try:
            return self._template.render(variables)
        except _REFUSALS as err:
            raise RequestError(
                f"the model's chat template refuses these messages: {err}",
                hint="check the order of roles and the shape of tools and tool calls",
            ) from err


class _Generation(Extension):
    """``{% generation %}...{% endgeneration %}`` marks assistant text in some templates; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own protocol

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body as it stands."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """Looks into plain dicts first where Jinja would try an attribute that no dict has, and pay for the exception."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return what Jinja's own method returns."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """JSON without HTML escapes, which Jinja's own filter would write."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now(UTC).strftime(pattern)


def _text(token: object) -> str:
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""
