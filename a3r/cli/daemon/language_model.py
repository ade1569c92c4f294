"""From settings to the language model of the leader and its fallbacks. Imports no provider's library: that happens at the first call."""

from __future__ import annotations

from collections.abc import Mapping

from a3r.adapters.litellm_model import LitellmModel
from a3r.core.errors import WorkspaceError
from a3r.core.llm import LanguageModel, Price
from a3r.core.settings import Settings

MILLION = 1e6


def models_of(
    settings: Settings, env: Mapping[str, str]
) -> tuple[LanguageModel | None, tuple[LanguageModel, ...]]:
    """The model (None: none is set) and its fallbacks in order.

    ``llm_base_url`` and ``llm_price`` count for the first model and for fallbacks of the same provider; other fallbacks
    have litellm's address and price.

    Raises:
        WorkspaceError: the price or a model's name can not be understood.
    """
    name = settings.llm.strip()
    if not name:
        return None, ()
    others = [other.strip() for other in settings.llm_fallbacks.split(",") if other.strip()]
    price = price_of(settings.llm_price)
    names = [_checked(one) for one in (name, *others)]
    models = [
        _model(one, settings, env, price if _provider(one) == _provider(name) else None)
        for one in names
    ]
    return models[0], tuple(models[1:])


def price_of(text: str) -> Price | None:
    """``3,15``: USD a million prompt and completion tokens; None when nothing is said.

    Raises:
        WorkspaceError: these are not two numbers from 0.
    """
    if not text.strip():
        return None
    try:
        prompt, completion = (float(part) / MILLION for part in text.split(","))
        return Price(prompt_usd=prompt, completion_usd=completion)
    except ValueError as error:
        raise WorkspaceError(
            f"setting 'llm_price' cannot be {text!r}",
            hint="USD a million prompt tokens and a million completion tokens: '3,15'; '0,0' for a model of your own",
            key="llm_price",
        ) from error


def _model(
    name: str, settings: Settings, env: Mapping[str, str], price: Price | None
) -> LitellmModel:
    here = bool(settings.llm_base_url) and _provider(name) == _provider(settings.llm.strip())
    # A provider of one's own often asks for no key, but the client library does.
    keyless = here and _provider(name) == "openai" and not env.get("OPENAI_API_KEY")
    return LitellmModel(
        name,
        base_url=settings.llm_base_url if here else "",
        api_key="none" if keyless else None,
        price=price,
        timeout_s=settings.llm_timeout_s,
    )


def _checked(name: str) -> str:
    provider, _, model = name.partition("/")
    if not provider or not model:
        raise WorkspaceError(
            f"{name!r} is no language model",
            hint="A3R_LLM and A3R_LLM_FALLBACKS name models as litellm does: provider/model, e.g. 'anthropic/claude-sonnet-4-5'",
            key="llm",
        )
    return name


def _provider(name: str) -> str:
    return name.partition("/")[0]
