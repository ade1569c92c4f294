"""Whether a finish can be taken: rewards that an update can carry, and choices that fit the captured tokens.

Reads an episode and a request, changes neither. Nothing is recorded of a finish that is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from swarm.protocol.episodes import CallTokens, FinishRequest
from swarm.protocol.errors import RewardError, TokensError
from swarm.protocol.records import CallRecord
from swarm.protocol.states import EpisodeKind
from swarm.server.journal.records import TokenChoices
from swarm.server.service.episodes import Episode

REWARD_LIMIT = 1e9
"""Largest magnitude of a reward, an advantage or a weight: its square and sums of a batch stay far inside what the update can carry."""


def check_finish(episode: Episode, request: FinishRequest) -> None:
    """Check everything that a finish says.

    Raises:
        RewardError: A value that is not finite or beyond ``REWARD_LIMIT``, an agent without a key, or a train episode in which an
            agent that trains made a call and has no reward.
        TokensError: Choices for a call that does not exist, or not one value a sampled token.
    """
    _check_rewards(episode, request)
    if episode.kind is EpisodeKind.TRAIN:
        _check_rewarded(episode, request)
    _check_tokens(episode, request.tokens)


def choices_of(tokens: Sequence[CallTokens]) -> list[TokenChoices]:
    """Return the request's choices as the journal keeps them."""
    return [
        TokenChoices(
            call_index=one.call_index,
            advantages=list(one.advantages),
            weights=list(one.weights),
            mask=list(one.mask),
        )
        for one in tokens
    ]


def masked_calls(calls: Sequence[CallRecord], choices: Iterable[TokenChoices]) -> list[CallRecord]:
    """Return the calls with ``token_mask`` set where a choice leaves a token out, by mask or by a weight of zero."""
    marked = [c.model_copy(update={"token_mask": []}) if c.token_mask else c for c in calls]
    for choice in choices:
        count = len(calls[choice.call_index].sampled_ids)
        mask = choice.mask or [True] * count
        if choice.weights:
            mask = [kept and weight > 0 for kept, weight in zip(mask, choice.weights, strict=True)]
        if not all(mask):
            update = {"token_mask": mask}
            marked[choice.call_index] = calls[choice.call_index].model_copy(update=update)
    return marked


def _check_rewards(episode: Episode, request: FinishRequest) -> None:
    rewards = {f"rewards.{agent}": value for agent, value in request.rewards.items()}
    values = {"reward": request.reward, **rewards, **request.metrics}
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise RewardError(
                f"{name!r} of episode {episode.episode_id!r} is {value!r}, not a finite number.",
                hint="Send a finite number, or abort the episode.",
            )
    for name, value in {"reward": request.reward, **rewards}.items():
        if value is not None and abs(value) > REWARD_LIMIT:
            raise RewardError(
                f"{name!r} of episode {episode.episode_id!r} is {value!r}, beyond {REWARD_LIMIT:.0e}.",
                hint="Scale rewards down; only their differences within a group count.",
            )
    unknown = sorted(set(request.rewards) - set(episode.details.agents) - {""})
    if unknown:
        known = ", ".join(map(repr, sorted(episode.details.agents))) or "none"
        raise RewardError(
            f"'rewards' of episode {episode.episode_id!r} names {unknown[0]!r}, which has no key in it.",
            hint=f"Agents with a key: {known}. Ask for one with POST /swarm/episodes/{{id}}/agents.",
        )


def _check_rewarded(episode: Episode, request: FinishRequest) -> None:
    """Every agent that trains and made a call needs a reward: one that is missing is not 0."""
    if request.reward is not None:
        return
    acted = sorted({call.agent for call in episode.calls})
    if not request.rewards and (not acted or acted == [""]):
        raise RewardError(
            f"Train episode {episode.episode_id!r} was finished without a reward.",
            hint="Send 'reward': a finite number; abort the episode when there is none.",
        )
    trained = [agent for agent in acted if episode.details.agents.get(agent, True)]
    missing = [agent for agent in trained if agent not in request.rewards]
    if missing or not request.rewards:
        names = ", ".join(map(repr, missing)) or "every agent"
        raise RewardError(
            f"Train episode {episode.episode_id!r} was finished without a reward for {names}.",
            hint="Name each agent that trains in 'rewards', or send 'reward' for all that are not named.",
        )


def _check_tokens(episode: Episode, tokens: Sequence[CallTokens]) -> None:
    seen: set[int] = set()
    for one in tokens:
        what = f"'tokens' of episode {episode.episode_id!r}"
        if not 0 <= one.call_index < len(episode.calls) or one.call_index in seen:
            again = (
                "names call twice:" if one.call_index in seen else "names a call that is not there:"
            )
            raise TokensError(
                f"{what} {again} {one.call_index}.",
                hint=f"The episode has {len(episode.calls)} calls, numbered from 0; name each at most once.",
            )
        seen.add(one.call_index)
        count = len(episode.calls[one.call_index].sampled_ids)
        for name, values in _lists(one):
            if values and len(values) != count:
                raise TokensError(
                    f"{what}: {name!r} of call {one.call_index} has {len(values)} values for {count} sampled tokens.",
                    hint="Send one value a sampled token (the trace has sampled_ids), or leave the list out.",
                )
            _check_values(f"{what}: {name!r} of call {one.call_index}", name, values)


def _lists(one: CallTokens) -> list[tuple[str, Sequence[float]]]:
    return [("advantages", one.advantages), ("weights", one.weights), ("mask", one.mask)]


def _check_values(what: str, name: str, values: Sequence[float]) -> None:
    least = 0.0 if name == "weights" else -REWARD_LIMIT
    for value in values:
        if not math.isfinite(value) or not least <= value <= REWARD_LIMIT:
            raise TokensError(
                f"{what} holds {value!r}.",
                hint=f"Send finite numbers from {least:g} to {REWARD_LIMIT:g}.",
            )
