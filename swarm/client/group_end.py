"""How an episode of a swarm group ends: on all servers or on none. Programs, see ``group_moves``."""

from __future__ import annotations

from collections.abc import Mapping

from swarm.client import calls, group_calls
from swarm.client.group_moves import Move, all_of, each, named
from swarm.client.group_roles import GroupGrant, GroupOutcome, Member
from swarm.protocol.episodes import AbortRequest, FinishReply, FinishRequest, PrepareReply
from swarm.protocol.errors import RewardError, ServerUnreachable, SwarmError
from swarm.protocol.states import EpisodeState
from swarm.triggers import Point, hit

GIVE_BACK_S = 5.0
"""Deadline of giving back a reservation or aborting a member; what fails ends by its deadline on the server."""


def give_back(
    members: Mapping[str, Member], reason: str, deadline_s: float = GIVE_BACK_S
) -> Move[dict[str, FinishReply]]:
    """Abort on all servers, whatever they answer; returns the answers that came."""
    sends = {
        server: calls.abort(m.grant.episode_id, AbortRequest(reason=reason[:500])).within(
            deadline_s
        )
        for server, m in members.items()
    }
    answers = yield from each(sends)
    return {s: a for s, a in answers.items() if not isinstance(a, SwarmError)}


def abort(grant: GroupGrant, reason: str, deadline_s: float = GIVE_BACK_S) -> Move[GroupOutcome]:
    """End the episode everywhere without a result; EXPIRED when a server's deadline had ended it before.

    Raises:
        ServerUnreachable: no server answered; each ends it by its own deadline.
    """
    replies = yield from give_back(grant.members, reason, deadline_s)
    if not replies:
        raise ServerUnreachable(
            "No server of the group answered when its episode was aborted.",
            hint="The servers end it by themselves at its idle deadline.",
        )
    expired = any(r.state is EpisodeState.EXPIRED for r in replies.values())
    state = EpisodeState.EXPIRED if expired else EpisodeState.ABORTED
    return _outcome(grant, state, reason, replies)


def finish(grant: GroupGrant, requests: Mapping[str, FinishRequest]) -> Move[GroupOutcome]:
    """Prepare on every server that trains, then commit; one that refuses ends it on all.

    ``requests`` has one for each server. Members that only play along are finished last and decide nothing.

    Raises:
        RewardError: a value is not finite (the episode stays open), or a server finds that rewards or tokens do not fit its
            calls (the episode is aborted when another server was told already).
    """
    for request in requests.values():
        calls.finish_body(request)  # what cannot be sent is refused before anything is sent
    training = {s: m for s, m in grant.members.items() if m.trains}
    if len(training) > 1:
        outcome = yield from _two_phases(grant, training, requests)
    else:
        outcome = yield from _at_once(grant, training or grant.members, requests)
    rest = {s: m for s, m in grant.members.items() if s not in outcome.servers and not m.trains}
    sends = {s: calls.finish(m.grant.episode_id, requests[s]) for s, m in rest.items()}
    if outcome.state is EpisodeState.FINISHED:
        replies = yield from each(sends)
        good = {s: a for s, a in replies.items() if not isinstance(a, SwarmError)}
        return outcome.model_copy(update={"servers": {**outcome.servers, **good}})
    return outcome


def _at_once(
    grant: GroupGrant, members: Mapping[str, Member], requests: Mapping[str, FinishRequest]
) -> Move[GroupOutcome]:
    """One server trains it, or none: no promise is needed."""
    sends = {s: calls.finish(m.grant.episode_id, requests[s]) for s, m in members.items()}
    replies = yield from all_of(sends)
    missed = {s: r for s, r in replies.items() if not r.accepted}
    reason = "; ".join(f"server {s!r}: {r.reason or 'not accepted'}" for s, r in missed.items())
    states = {r.state for r in replies.values()}
    state = EpisodeState.FINISHED if states == {EpisodeState.FINISHED} else EpisodeState.ABORTED
    return _outcome(grant, state, reason, replies, accepted=not missed)


def _two_phases(
    grant: GroupGrant, training: Mapping[str, Member], requests: Mapping[str, FinishRequest]
) -> Move[GroupOutcome]:
    answers = yield from each(
        {s: group_calls.prepare(m.grant.episode_id, requests[s]) for s, m in training.items()}
    )
    for server, answer in answers.items():
        if isinstance(answer, SwarmError) and answer.status == RewardError.status:
            # The other servers keep the first word they were told, so it cannot be said again in other words.
            yield from give_back(grant.members, f"server {server!r}: {answer.message}")
            raise named(server, answer) from answer
    refused = {s: _why_not(a) for s, a in answers.items()}
    refused = {s: why for s, why in refused.items() if why}
    if refused:
        reason = "; ".join(f"server {s!r} refused: {why}" for s, why in refused.items())
        replies = yield from give_back(grant.members, reason)
        return _outcome(grant, EpisodeState.ABORTED, reason, replies)
    hit(Point.CLIENT_PREPARED)
    promises = {s: a.commit_within_s for s, a in answers.items()}
    return (yield from _commit(grant, promises))


def _why_not(answer: PrepareReply | SwarmError) -> str:
    if isinstance(answer, SwarmError):
        return answer.message
    return "" if answer.prepared else answer.reason or "it did not say why"


def _commit(grant: GroupGrant, promises: Mapping[str, float]) -> Move[GroupOutcome]:
    """Commit on one server (that with the shortest promise), then on the rest.

    Until the first has answered nothing has happened anywhere, and the whole can still be called off.
    """
    ids = {s: grant.members[s].grant.episode_id for s in promises}
    first, *rest = sorted(promises, key=lambda s: promises[s])
    answers = yield from each({first: group_calls.commit(ids[first], promises[first])})
    failed = _failure(answers[first])
    if failed:
        reason = f"server {first!r} did not commit: {failed}"
        others = {s: m for s, m in grant.members.items() if s != first}
        replies = yield from give_back(others, reason)
        doubt = isinstance(answers[first], ServerUnreachable)
        if not doubt:
            yield from give_back({first: grant.members[first]}, reason)
        split = {first: f"in doubt: {failed}"} if doubt else {}
        return _outcome(grant, EpisodeState.ABORTED, reason, replies, split=split)
    answers |= yield from each({s: group_calls.commit(ids[s], promises[s]) for s in rest})
    split = {s: why for s, a in answers.items() if (why := _failure(a))}
    replies = {s: a for s, a in answers.items() if isinstance(a, FinishReply)}
    reason = "; ".join(f"server {s!r} broke its promise: {why}" for s, why in split.items())
    return _outcome(grant, EpisodeState.FINISHED, reason, replies, accepted=not split, split=split)


def _failure(answer: FinishReply | SwarmError) -> str:
    if isinstance(answer, SwarmError):
        return answer.message
    return "" if answer.accepted else answer.reason or f"the episode is {answer.state.value}"


def _outcome(
    grant: GroupGrant,
    state: EpisodeState,
    reason: str,
    replies: Mapping[str, FinishReply],
    *,
    accepted: bool = False,
    split: Mapping[str, str] | None = None,
) -> GroupOutcome:
    return GroupOutcome(
        episode_id=grant.episode_id,
        state=state,
        accepted=accepted,
        reason=reason,
        step=grant.step,
        servers=dict(replies),
        split=dict(split or {}),
    )
