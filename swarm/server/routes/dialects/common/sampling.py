"""Sampling values as OpenAI and vLLM name them, the same in chat and completions."""

from __future__ import annotations

from typing import Any, cast

from swarm.protocol.errors import RequestError
from swarm.server.routes.dialects.common.fields import Fields, unsupported, wrong
from swarm.server.service.calls import Grammar, Sampling

MAX_STOPS = 16
MAX_TEMPERATURE = 2
"""OpenAI's range, and all that vLLM takes."""
MAX_ID = (1 << 31) - 1
"""Of a token; no vocabulary comes near."""
MAX_CHOICES = 128
GUIDED = {
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_grammar": "lark",
    "guided_choice": "choice",
}
"""vLLM's older spellings -> kind of grammar."""
SHAPING = frozenset(
    (
        "top_p", "top_k", "min_p", "stop_token_ids", "min_tokens", "ignore_eos", "logit_bias", "presence_penalty",
        "frequency_penalty", "repetition_penalty", "response_format", "structured_outputs", *GUIDED,
    )
)  # fmt: skip
"""Every key that ``read_sampling`` reads."""


def read_sampling(fields: Fields) -> Sampling:
    """Return what shapes the distribution beyond temperature.

    Raises:
        RequestError: a value out of its range; more than one grammar.
    """
    if not fields.sends(SHAPING):
        return Sampling()
    return Sampling(
        top_p=fields.number("top_p", low=0, high=1),
        top_k=fields.integer("top_k", low=-1) or None,
        min_p=fields.number("min_p", low=0, high=1),
        stop_token_ids=_ids(fields, "stop_token_ids"),
        min_tokens=fields.integer("min_tokens", low=0) or 0,
        ignore_eos=fields.flag("ignore_eos"),
        logit_bias=_bias(fields),
        presence_penalty=fields.number("presence_penalty", low=-2, high=2) or 0.0,
        frequency_penalty=fields.number("frequency_penalty", low=-2, high=2) or 0.0,
        repetition_penalty=_repetition(fields),
        grammar=_grammar(fields),
    )


def read_format(value: object, where: str) -> Grammar | None:
    """Return the grammar of a ``response_format`` (or ``text.format``) object; None for plain text."""
    given = Fields(value, where)
    kind = given.text("type")
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return Grammar("json_object")
    if kind == "json_schema":
        # Chat wraps the schema, responses does not.
        inner = (
            Fields(given.get("json_schema"), f"{where}.json_schema")
            if "json_schema" in given
            else given
        )
        return Grammar("json_schema", _schema(inner.get("schema"), inner.path("schema")))
    if kind in ("regex", "structural_tag", "grammar"):
        raise unsupported(where, value, "Use json_object or json_schema.")
    raise wrong(f"{where}.type", kind, "'text', 'json_object' or 'json_schema'")


def least(*limits: int | None) -> int | None:
    """Return the smallest limit that was sent; None when none was."""
    return min((limit for limit in limits if limit is not None), default=None)


def _schema(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(where, value, "a JSON schema (an object)")
    return cast("dict[str, Any]", value)


def _ids(fields: Fields, key: str) -> list[int]:
    ids = fields.items(key)
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i <= MAX_ID for i in ids):
        raise wrong(fields.path(key), ids, "a list of token ids")
    return ids


def _bias(fields: Fields) -> dict[int, float]:
    bias: dict[int, float] = {}
    for key, value in fields.mapping("logit_bias").items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        token = key.isascii() and key.isdigit() and len(key) <= len(str(MAX_ID))
        if not (token and number and -100 <= value <= 100):
            path = fields.path("logit_bias")
            raise wrong(f"{path}.{key[:20]}", value, "a number from -100 to 100 by token id")
        bias[int(key)] = float(value)
    return bias


def _repetition(fields: Fields) -> float:
    value = fields.number("repetition_penalty", low=0)
    if value == 0:
        raise wrong(fields.path("repetition_penalty"), value, "a number above 0")
    return 1.0 if value is None else value


def _grammar(fields: Fields) -> Grammar | None:
    found: list[Grammar] = []
    if "response_format" in fields:
        read = read_format(fields.get("response_format"), fields.path("response_format"))
        found += [read] if read is not None else []
    found += [_guided(kind, fields.get(key), key) for key, kind in GUIDED.items() if key in fields]
    outputs = Fields(fields.mapping("structured_outputs"), "structured_outputs")
    named = {"json": "json_schema", "regex": "regex", "grammar": "lark", "choice": "choice"}
    found += [
        _guided(kind, outputs.get(key), outputs.path(key))
        for key, kind in named.items()
        if key in outputs
    ]
    if outputs.flag("json_object"):
        found.append(Grammar("json_object"))
    if len(found) > 1:
        raise RequestError(
            f"{len(found)} constraints on the answer were sent: {', '.join(g.kind for g in found)}.",
            hint="Send one of response_format, structured_outputs and guided_*.",
        )
    return found[0] if found else None


def _guided(kind: str, value: Any, where: str) -> Grammar:
    if kind == "json_schema":
        return Grammar(kind, _schema(value, where))
    if kind == "choice":
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise wrong(where, value, "a list of strings")
        return Grammar(kind, value)
    if not isinstance(value, str) or not value:
        raise wrong(where, value, "a non-empty string")
    return Grammar(kind, value)
