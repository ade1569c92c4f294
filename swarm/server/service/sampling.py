"""What of a caller's sampling is applied, and how: the caller's values within the server's bounds, and in train mode usable ones.

Pure. A trainer needs the distribution that a token was drawn from; settings whose distribution it cannot rebuild are replaced,
masked or refused as ``sampling.train`` says. Evaluation keeps what the caller asked for.
"""

from __future__ import annotations

from typing import Any

import msgspec

from swarm.protocol.config import SamplingConfig
from swarm.protocol.errors import UnsupportedParameter
from swarm.protocol.states import EpisodeKind
from swarm.server.ports import SamplingParams
from swarm.server.service.calls import ChatCall, Grammar, Sampling

GREEDY_HINT = "Send a temperature above 0, or set sampling.train.greedy to 'default_temperature'."
TRUNCATION_HINT = "Leave it out, or set sampling.train.truncation to 'replay'."
GREEDY_BELOW = 0.01
"""Temperatures below this count as 0 in training: log-probabilities are divided by them, and so is every rounding error."""
PLAIN = SamplingParams()


class Applied(msgspec.Struct):
    """Sampling as it takes effect for one call."""

    temperature: float
    max_tokens: int
    params: SamplingParams
    replayable: bool
    """False: the call's tokens cannot train (``sampling_not_replayable``)."""
    shown: dict[str, Any] = {}
    """What the reply's header and the trace say: temperature, max_tokens and whatever is not plain."""


def apply_sampling(
    call: ChatCall,
    config: SamplingConfig,
    kind: EpisodeKind,
    *,
    room: int,
    grammar: Grammar | None,
    replays: bool = True,
) -> Applied:
    """Return what is applied to ``call``; ``room`` is how many tokens still fit, ``grammar`` the constraint in force.

    ``replays`` False: the engine's trainer can rebuild temperature only, so what was sampled in any other way cannot train.

    Raises:
        UnsupportedParameter: the config refuses in train mode what the call asks for.
    """
    asked = call.max_tokens or config.max_response_tokens
    wanted = config.default_temperature if call.temperature is None else call.temperature
    params = _params(call.sampling, grammar)
    replaced: list[str] = []
    replayable = True
    temperature = wanted
    if kind is EpisodeKind.TRAIN:
        temperature = _train_temperature(wanted, config)
        replaced += ["temperature"] if temperature != wanted else []
        params, replayable, left_out = _train_params(params, config)
        replayable = replayable and (replays or params == PLAIN)
        replaced += left_out
    applied = Applied(
        temperature=temperature,
        max_tokens=min(asked, config.max_response_tokens, room),
        params=params,
        replayable=replayable,
    )
    applied.shown = _shown(applied, call, grammar, replaced)
    return applied


def _params(sampling: Sampling, grammar: Grammar | None) -> SamplingParams:
    body = {"kind": grammar.kind, "body": grammar.body} if grammar is not None else None
    return SamplingParams(
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        top_k=max(0, sampling.top_k or 0),
        min_p=sampling.min_p or 0.0,
        logit_bias=sampling.logit_bias,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,
        grammar=msgspec.json.encode(body).decode() if body is not None else "",
    )


def _train_temperature(wanted: float, config: SamplingConfig) -> float:
    if wanted >= GREEDY_BELOW:
        return wanted
    if config.train.greedy == "mask":
        return 0.0
    if config.train.greedy == "refuse":
        raise UnsupportedParameter(
            f"temperature {wanted:g} cannot be trained on: it has no usable log-probability.",
            hint=GREEDY_HINT,
            parameter="temperature",
        )
    return config.default_temperature


def _train_params(
    params: SamplingParams, config: SamplingConfig
) -> tuple[SamplingParams, bool, list[str]]:
    """Return what is applied, whether the trainer can replay it, and the names of what was left out."""
    if not params.truncates or config.train.truncation == "replay":
        return params, True, []
    samplers = [n for n in ("top_p", "top_k", "min_p") if getattr(params, n) != getattr(PLAIN, n)]
    if config.train.truncation == "refuse":
        names = [*samplers, *(["response_format"] if params.grammar else [])]
        name = names[0] if names else "min_tokens"
        raise UnsupportedParameter(
            f"The parameter {name!r} is refused in training by sampling.train.truncation.",
            hint=TRUNCATION_HINT,
            parameter=name,
        )
    plain = {name: getattr(PLAIN, name) for name in samplers}
    kept = msgspec.structs.replace(params, **plain)
    return kept, not kept.truncates, samplers


def _shown(
    applied: Applied, call: ChatCall, grammar: Grammar | None, replaced: list[str]
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "temperature": applied.temperature,
        "max_tokens": applied.max_tokens,
    }
    if applied.params != PLAIN:
        for name in SamplingParams.__struct_fields__:
            value = getattr(applied.params, name)
            if name != "grammar" and value != getattr(PLAIN, name):
                shown[name] = _named(value) if name == "logit_bias" else value
    if grammar is not None:
        shown["grammar"] = grammar.kind
    if call.seed is not None:
        shown["seed"] = call.seed
    if replaced:
        shown["replaced"] = replaced
    if not applied.replayable:
        shown["trained"] = False
    return shown


def _named(bias: dict[int, float]) -> dict[str, float]:
    """Token ids as JSON writes them."""
    return {str(token): value for token, value in bias.items()}
