"""How a swarm group takes an episode: of all servers or of none. A program, see ``group_moves``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swarm.client import group_calls
from swarm.client.group_end import give_back
from swarm.client.group_moves import Ask, Move, Send, each, named
from swarm.client.group_roles import Cast, GroupGrant, Member, WhenTrained, granted_to
from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.errors import SwarmError
from swarm.protocol.states import EpisodeKind, GrantOutcome

FROZEN = {
    "kind": EpisodeKind.EVAL,
    "step": None,
    "reserve_s": None,
    "cursor": None,
    "throttle": None,
}
"""What changes in a request to a server that only plays along."""
WAIT_SHARE = 0.5
"""Share of a reservation's life that may be spent waiting for the other servers."""


@dataclass(frozen=True, slots=True)
class TakePlan:
    """How one episode is asked for."""

    order: Sequence[str]
    """Servers by their ids. Everybody takes them in this order, so no two groups wait for each other."""
    request: GrantRequest
    steps: Mapping[str, int]
    """Server -> the only step to be granted in."""
    guests: frozenset[str]
    """Servers that play along without training this episode."""
    reserve_s: float
    when_trained: WhenTrained


def take(cast: Cast, plan: TakePlan) -> Move[GroupGrant]:
    """Reserve on one server after the other, then confirm all; none is kept unless all are granted.

    Raises:
        SwarmError: a server refused or did not answer; what was reserved is given back.
    """
    taken: dict[str, Member] = {}
    training = [s for s in plan.order if _may_train(cast, plan, s)]
    asked = sorted(plan.order, key=lambda s: s not in training)  # stable: guests come last
    for server in asked:
        request = _request(plan, server, training, cast.servers[0])
        if taken and not request.task_id:  # the first server took a task from its queue
            task_id = next(iter(taken.values())).grant.task_id
            request = request.model_copy(update={"task_id": task_id})
        answer = yield from _ask(server, request, taken)
        if answer.outcome is GrantOutcome.GRANTED:
            taken[server] = Member(answer, request)
        elif _plays_on(answer, plan, request) and len(training) > 1:
            training.remove(server)
            asked.append(server)  # as a guest, when those that train have said which task
        else:
            return (yield from _refused(server, answer, taken))
    refusal = yield from _confirm(taken)
    if refusal is not None:
        return refusal
    yield from _make_keys(cast, taken)
    return granted_to({server: taken[server] for server in cast.servers})


def _may_train(cast: Cast, plan: TakePlan, server: str) -> bool:
    train = plan.request.kind is EpisodeKind.TRAIN
    return train and cast.trains(server) and server not in plan.guests


def _request(plan: TakePlan, server: str, training: Sequence[str], lead: str) -> GrantRequest:
    """What to ask of one server: the first may be waited for; those after it only while the first reservation lives."""
    asked = plan.request
    if server not in training:
        evaluated = asked.kind is EpisodeKind.EVAL
        wait_s = asked.wait_s if evaluated else min(asked.wait_s, WAIT_SHARE * plan.reserve_s)
        step = asked.step if evaluated and server == lead else None
        return asked.model_copy(update={**FROZEN, "step": step, "wait_s": wait_s})
    update: dict[str, Any] = {"step": plan.steps.get(server)}
    others = len(training) - 1
    if others:
        update["reserve_s"] = plan.reserve_s
    if server != training[0]:
        update["wait_s"] = min(asked.wait_s, WAIT_SHARE * plan.reserve_s / others)
    return asked.model_copy(update=update)


def _plays_on(answer: Grant, plan: TakePlan, request: GrantRequest) -> bool:
    """Whether a server that trains no more is to play along frozen."""
    complete = answer.outcome is GrantOutcome.TRAINING_COMPLETE
    return complete and plan.when_trained == "play" and request.kind is EpisodeKind.TRAIN


def _refused(server: str, answer: Grant, taken: Mapping[str, Member]) -> Move[GroupGrant]:
    """Give back what was taken; the answer that the whole group gets."""
    reason = f"server {server!r}: {answer.reason or answer.outcome.value}"
    yield from give_back(taken, reason)
    return GroupGrant(outcome=answer.outcome, step=answer.step, reason=reason)


def _ask(server: str, request: GrantRequest, taken: Mapping[str, Member]) -> Move[Grant]:
    (answer,) = yield [Ask(server, request)]
    if isinstance(answer, SwarmError):
        yield from give_back(taken, f"server {server!r} could not be asked: {answer.message}")
        raise named(server, answer) from answer
    return answer


def _confirm(taken: Mapping[str, Member]) -> Move[GroupGrant | None]:
    reserved = {s: m for s, m in taken.items() if m.request.reserve_s is not None}
    answers = yield from each(
        {s: group_calls.confirm(m.grant.episode_id) for s, m in reserved.items()}
    )
    for server, answer in answers.items():
        if isinstance(answer, SwarmError):
            reason = f"server {server!r} did not keep its reservation: {answer.message}"
            yield from give_back(taken, reason)
            step = taken[server].grant.step
            return GroupGrant(outcome=GrantOutcome.WAIT, step=step, reason=reason)
    return None


def _make_keys(cast: Cast, taken: dict[str, Member]) -> Move[None]:
    """Add the keys of servers that play several roles."""
    wanted = [(s, role, train) for s in taken for role, train in cast.agents(s).items()]
    if not wanted:
        return
    answers = yield [
        Send(s, group_calls.agent_key(taken[s].grant.episode_id, role, train=train))
        for s, role, train in wanted
    ]
    for (server, role, _), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, SwarmError):
            yield from give_back(taken, f"server {server!r} gave no key for {role!r}")
            raise named(server, answer) from answer
        taken[server] = replace(taken[server], keys={**taken[server].keys, role: answer})
