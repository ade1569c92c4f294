"""A language model behind litellm, which knows the providers. litellm is imported at the first use: that takes seconds."""

from __future__ import annotations

import logging
import os
import re
import threading
import warnings
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, cast

from a3r.adapters.litellm_errors import classified
from a3r.core.errors import ModelRefused
from a3r.core.llm import ModelMessage, ModelReply, ModelRequest, Price, ToolCall

MARGIN = 1.2
"""Token counts for a provider whose tokenizer is not public are estimates."""
BYTES_A_TOKEN = 4
TOKENS_A_MESSAGE = 10

_importing = threading.Lock()


class LitellmModel:
    """Implements ``a3r.core.llm.LanguageModel``. Thread-safe. Retries and fallbacks are the caller's."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str = "",
        api_key: str | None = None,
        price: Price | None = None,
        timeout_s: float = 300.0,
    ) -> None:
        """``name``: litellm's ``provider/model``. ``api_key`` None: the provider's own variable.

        ``price`` goes before litellm's. With a ``base_url`` only ``price`` counts: who serves there sets prices of his own.
        """
        self._name, self._base_url, self._api_key = name, base_url, api_key
        self._price, self._timeout_s = price, timeout_s

    @property
    def name(self) -> str:
        """``provider/model``."""
        return self._name

    def price(self) -> Price | None:
        """The given price, else the dearest tier that litellm knows; None when nobody knows."""
        if self._price is not None or self._base_url:
            return self._price
        return known_price(self._name)

    def count_tokens(self, request: ModelRequest) -> int:
        """An estimate from above: litellm's count with a margin, no less than a quarter of the bytes."""
        messages = [_message(message) for message in request.messages]
        schema = str(request.json_schema or "")
        tools = [_tool(spec.name, spec.description, spec.parameters) for spec in request.tools]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                counted = int(
                    library().token_counter(
                        model=self._name, messages=messages, tools=tools or None
                    )
                )
            except Exception:  # noqa: BLE001 - a tokenizer that can not be loaded; the bytes will do
                counted = 0
        size = len(f"{messages}{tools}".encode())
        whole = max(MARGIN * counted, size / BYTES_A_TOKEN) + len(schema) / BYTES_A_TOKEN
        return int(whole) + TOKENS_A_MESSAGE * (1 + len(messages))

    def complete(self, request: ModelRequest) -> ModelReply:
        """One HTTP call.

        Raises:
            ModelUnavailable: rate limited, down, out of time; ``details``: ``retry_after_s``, ``maybe_billed``.
            ModelRefused: no key, no credit, no such model, a request that the provider does not take.
        """
        arguments = self._arguments(request)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                response: Any = library().completion(**arguments)
            except Exception as error:  # litellm raises what its providers' libraries raise
                raise classified(error, self._name) from error
        return self._reply(response)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        found: dict[str, Any] = {
            "model": self._name,
            "messages": [_message(message) for message in request.messages],
            "max_tokens": request.max_tokens,
            "timeout": self._timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "stream": False,
        }
        if request.temperature is not None:
            found["temperature"] = request.temperature
        if self._base_url:
            found["base_url"] = self._base_url
        if self._api_key is not None:
            found["api_key"] = self._api_key
        if request.tools:
            found["tools"] = [_tool(t.name, t.description, t.parameters) for t in request.tools]
        elif request.json_schema is not None and self._takes_schema(request.json_schema):
            form = {"name": "answer", "schema": request.json_schema, "strict": False}
            found["response_format"] = {"type": "json_schema", "json_schema": form}
        return found

    def _takes_schema(self, schema: dict[str, Any]) -> bool:
        if schema.get("type") != "object" or self._base_url:
            return False
        return bool(library().supports_response_schema(model=self._name))

    def _reply(self, response: Any) -> ModelReply:
        """A reply without a choice is an empty one: the desk asks again."""
        choice: Any = response.choices[0] if response.choices else None
        message: Any = getattr(choice, "message", None)
        calls: list[Any] = list(getattr(message, "tool_calls", None) or [])
        prompt, completion = _usage(response)
        return ModelReply(
            text=str(getattr(message, "content", None) or ""),
            tool_calls=tuple(
                ToolCall(
                    id=str(call.id or ""),
                    name=str(call.function.name or ""),
                    arguments=str(call.function.arguments or ""),
                )
                for call in calls
            ),
            finish_reason=str(getattr(choice, "finish_reason", None) or ""),
            prompt_tokens=prompt,
            completion_tokens=completion,
            model=self._name,
            cost_usd=self._cost(response),
        )

    def _cost(self, response: Any) -> float | None:
        """What litellm says where its prices count: it knows tiers and discounts."""
        if self._price is not None or self._base_url:
            return None
        hidden: dict[str, Any] = getattr(response, "_hidden_params", None) or {}
        cost = hidden.get("response_cost")
        return float(cost) if isinstance(cost, (int, float)) else None


@cache
def library() -> Any:
    """litellm, quiet: no prints, no fetched price list, no ``.env`` of whatever folder this is, no warnings.

    Raises:
        ModelRefused: it is not installed.
    """
    with _importing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
        try:
            import litellm  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]
        except ImportError as error:
            raise ModelRefused(
                f"litellm is not installed: {error}", hint="pip install 'a3r[llm]'"
            ) from error
    found = cast("Any", litellm)
    found.suppress_debug_info = True
    found.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx", "openai"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return found


def close_clients() -> None:
    """Close the connections that litellm keeps open for later calls; the next call opens new ones. Safe to call at any time."""
    if library.cache_info().currsize == 0:
        return
    kept: dict[str, Any] = library().in_memory_llm_clients_cache.cache_dict
    for key, client in list(kept.items()):
        close = getattr(client, "close", None)
        if close is not None and not iscoroutinefunction(close):
            del kept[key]
            close()


def known_price(name: str) -> Price | None:
    """The price that litellm knows, the dearest tier of several; None when it knows none. Asks nobody over the network."""
    found = library()
    try:
        bare, provider, _, _ = found.get_llm_provider(model=name)
    except Exception:  # noqa: BLE001 - a provider that litellm does not know
        return None
    for key in (name, f"{provider}/{bare}", bare):
        entry: dict[str, Any] = found.model_cost.get(key) or {}
        prompt, completion = _dearest(entry, "input"), _dearest(entry, "output")
        if (
            entry.get("litellm_provider") == provider
            and prompt is not None
            and completion is not None
        ):
            return Price(prompt_usd=prompt, completion_usd=completion)
    return None


def missing_keys(name: str) -> list[str]:
    """Variables that the provider needs and that are not set, as far as litellm knows."""
    told: dict[str, Any] = library().validate_environment(model=name)
    return [] if told.get("keys_in_environment") else [str(key) for key in told["missing_keys"]]


def _dearest(entry: dict[str, Any], side: str) -> float | None:
    base = f"{side}_cost_per_token"
    prices = [
        float(value)
        for key, value in entry.items()
        if re.fullmatch(rf"{base}(_above_\d+k_tokens)?", key) and isinstance(value, (int, float))
    ]
    return max(prices) if base in entry and prices else None


def _usage(response: Any) -> tuple[int | None, int | None]:
    """(prompt, completion) tokens; None where the provider said nothing, which litellm turns into zero."""
    usage: Any = getattr(response, "usage", None)
    prompt, completion = getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0)
    return (int(prompt), int(completion or 0)) if prompt else (None, None)


def _message(message: ModelMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        body["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        body["content"] = message.content or None
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return body


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
