"""The programs of a swarm group, driven by scripted servers: what is sent, in which order, and what a bad answer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from swarm.client.group_end import abort, finish
from swarm.client.group_moves import Ask, Move, Send
from swarm.client.group_roles import Cast, GroupGrant, GroupRole, Member, cast_of, granted_to
from swarm.client.group_take import TakePlan, take
from swarm.protocol.episodes import (
    AgentKey,
    FinishReply,
    FinishRequest,
    Grant,
    GrantRequest,
    PrepareReply,
)
from swarm.protocol.errors import (
    EpisodeGone,
    RewardError,
    ServerUnreachable,
    StateError,
    SwarmError,
)
from swarm.protocol.states import EpisodeKind, EpisodeState, GrantOutcome

Answer = Callable[[str, str, dict[str, Any]], Any]
"""(server, what, body) -> a message or an error; what is the last part of the path, or ``ask``."""
CAST = cast_of(["x", "y", "z"], None, None)
AWAY = ServerUnreachable("gone")


def run(move: Move[Any], answer: Answer) -> tuple[Any, list[list[str]]]:
    """Drive a program; returns its result and, batch by batch, what was sent (``server:what``)."""
    log: list[list[str]] = []
    try:
        batch = next(move)
        while True:
            log.append([f"{one.server}:{what(one)}" for one in batch])
            batch = move.send([answer(one.server, what(one), body(one)) for one in batch])
    except StopIteration as end:
        return end.value, log


def what(one: Send | Ask) -> str:
    return one.request.kind.value if isinstance(one, Ask) else one.call.path.split("/")[-1]


def body(one: Send | Ask) -> dict[str, Any]:
    if isinstance(one, Ask):
        return one.request.model_dump()
    return orjson.loads(one.call.body) if one.call.body else {}


def member(server: str, kind: EpisodeKind = EpisodeKind.TRAIN) -> Member:
    grant = Grant(outcome=GrantOutcome.GRANTED, step=4, episode_id=f"ep-{server}", task_id="t")
    return Member(grant, GrantRequest(client_id="c", kind=kind, task_id="t"))


def grant_of(*servers: str, guests: str = "") -> GroupGrant:
    members = {s: member(s) for s in servers}
    return granted_to(members | {s: member(s, EpisodeKind.EVAL) for s in guests})


def reply(server: str, state: EpisodeState = EpisodeState.FINISHED, **more: Any) -> FinishReply:
    accepted = state is EpisodeState.FINISHED
    return FinishReply(episode_id=f"ep-{server}", state=state, accepted=accepted, step=4, **more)


def good(server: str, asked: str, told: dict[str, Any]) -> Any:
    """A server that takes everything."""
    if asked == "prepare":
        return PrepareReply(episode_id=f"ep-{server}", prepared=True, commit_within_s=30.0)
    if asked in ("commit", "finish"):
        return reply(server)
    if asked == "abort":
        return reply(server, EpisodeState.ABORTED, reason=told["reason"])
    if asked == "agents":
        key = {"api_key": "k", "base_url": "http://x/v1"}
        return AgentKey(episode_id=f"ep-{server}", agent=told["agent"], train=told["train"], **key)
    return member(server).grant


def but(**exceptions: Any) -> Answer:
    """As ``good``, except ``server_what=answer``."""

    def answer(server: str, asked: str, told: dict[str, Any]) -> Any:
        found = exceptions.get(f"{server}_{asked}")
        return good(server, asked, told) if found is None else found

    return answer


REQUESTS = {s: FinishRequest(reward=1.0) for s in "xyz"}

# --- finish ----------------------------------------------------------------------------------------------------


def test_all_prepare_at_once_then_one_commits_then_the_rest_and_guests_come_last() -> None:
    outcome, log = run(finish(grant_of("x", "y", guests="z"), REQUESTS), good)
    assert log == [["x:prepare", "y:prepare"], ["x:commit"], ["y:commit"], ["z:finish"]]
    assert (outcome.accepted, outcome.split, set(outcome.servers)) == (True, {}, {"x", "y", "z"})


def test_the_shortest_promise_is_committed_first() -> None:
    short = PrepareReply(episode_id="ep-y", prepared=True, commit_within_s=2.0)
    _, log = run(finish(grant_of("x", "y"), REQUESTS), but(y_prepare=short))
    assert log[1:] == [["y:commit"], ["x:commit"]]


def test_one_training_server_is_finished_in_one_step() -> None:
    outcome, log = run(finish(grant_of("x", guests="z"), REQUESTS), good)
    assert log == [["x:finish"], ["z:finish"]]
    assert outcome.accepted


@pytest.mark.parametrize(
    "answer",
    [
        PrepareReply(episode_id="ep-y", prepared=False, reason="too late for step 4"),
        EpisodeGone("too late for step 4"),
        ServerUnreachable("too late for step 4"),
    ],
)
def test_one_refusal_aborts_on_all_and_says_whose(answer: Any) -> None:
    outcome, log = run(finish(grant_of("x", "y", guests="z"), REQUESTS), but(y_prepare=answer))
    assert log == [["x:prepare", "y:prepare"], ["x:abort", "y:abort", "z:abort"]]
    assert (outcome.accepted, outcome.state) == (False, EpisodeState.ABORTED)
    assert outcome.reason == "server 'y' refused: too late for step 4"


def test_a_reward_that_a_server_finds_missing_ends_the_episode_and_is_raised() -> None:
    seen: list[str] = []

    def answer(server: str, asked: str, told: dict[str, Any]) -> Any:
        seen.append(f"{server}:{asked}")
        return (
            RewardError("no reward for 'critic'")
            if (server, asked) == ("y", "prepare")
            else good(server, asked, told)
        )

    with pytest.raises(RewardError, match="Server 'y': no reward for 'critic'"):
        run(finish(grant_of("x", "y"), REQUESTS), answer)
    assert seen[-2:] == ["x:abort", "y:abort"]


def test_a_first_commit_that_is_refused_calls_the_whole_off() -> None:
    expired = reply("x", EpisodeState.EXPIRED, reason="not committed")
    outcome, log = run(finish(grant_of("x", "y"), REQUESTS), but(x_commit=expired))
    assert log[1:] == [["x:commit"], ["y:abort"], ["x:abort"]]
    assert (outcome.accepted, outcome.split) == (False, {})
    assert outcome.reason == "server 'x' did not commit: not committed"


def test_a_first_commit_without_an_answer_calls_off_the_rest_and_is_told_as_in_doubt() -> None:
    outcome, log = run(finish(grant_of("x", "y"), REQUESTS), but(x_commit=AWAY))
    assert log[1:] == [["x:commit"], ["y:abort"]]
    assert (outcome.accepted, outcome.split) == (False, {"x": "in doubt: gone"})


def test_a_later_commit_that_fails_is_a_broken_promise_and_never_called_accepted() -> None:
    outcome, log = run(finish(grant_of("x", "y"), REQUESTS), but(y_commit=AWAY))
    assert log[1:] == [["x:commit"], ["y:commit"]]
    assert (outcome.state, outcome.accepted) == (EpisodeState.FINISHED, False)
    assert outcome.split == {"y": "gone"}
    assert "server 'y' broke its promise" in outcome.reason


def test_a_guest_that_fails_decides_nothing() -> None:
    outcome, _ = run(finish(grant_of("x", "y", guests="z"), REQUESTS), but(z_finish=AWAY))
    assert (outcome.accepted, set(outcome.servers)) == (True, {"x", "y"})


def test_an_abort_needs_one_answer_only() -> None:
    outcome, _ = run(abort(grant_of("x", "y"), "enough"), but(x_abort=AWAY))
    assert (outcome.state, outcome.reason) == (EpisodeState.ABORTED, "enough")
    expired = reply("y", EpisodeState.EXPIRED, reason="idle deadline")
    outcome, _ = run(abort(grant_of("x", "y"), "enough"), but(y_abort=expired))
    assert outcome.state is EpisodeState.EXPIRED
    with pytest.raises(ServerUnreachable):
        run(abort(grant_of("x", "y"), "enough"), but(x_abort=AWAY, y_abort=AWAY))


# --- take ------------------------------------------------------------------------------------------------------


def taking(
    cast: Cast = CAST, kind: EpisodeKind = EpisodeKind.TRAIN, **changes: Any
) -> Move[GroupGrant]:
    request = GrantRequest(client_id="group", kind=kind, task_id="t", wait_s=20.0)
    plan: dict[str, Any] = {
        "order": ("z", "x", "y"),
        "request": request,
        "steps": {"y": 7},
        "guests": frozenset[str](),
        "reserve_s": 10.0,
        "when_trained": "play",
    }
    return take(cast, TakePlan(**{**plan, **changes}))


WAITS = Grant(outcome=GrantOutcome.WAIT, step=7, reason="the step is full")
TRAINED = Grant(outcome=GrantOutcome.TRAINING_COMPLETE, step=9)


def test_servers_are_reserved_in_the_order_of_their_ids_and_confirmed_together() -> None:
    asked: dict[str, dict[str, Any]] = {}

    def answer(server: str, kind: str, told: dict[str, Any]) -> Any:
        asked.setdefault(server, told)
        return good(server, kind, told)

    grant, log = run(taking(), answer)
    assert log == [["z:train"], ["x:train"], ["y:train"], ["z:confirm", "x:confirm", "y:confirm"]]
    assert (grant.outcome, list(grant.members), grant.episode_id) == (
        "granted",
        ["x", "y", "z"],
        "ep-x",
    )
    assert {s: (a["reserve_s"], a["wait_s"], a["step"]) for s, a in asked.items()} == {
        "z": (10.0, 20.0, None),
        "x": (10.0, 2.5, None),
        "y": (10.0, 2.5, 7),
    }


def test_a_server_that_grants_nothing_gets_the_others_released() -> None:
    grant, log = run(taking(), but(y_train=WAITS))
    assert log[-1] == ["z:abort", "x:abort"]
    assert (grant.outcome, grant.members) == (GrantOutcome.WAIT, {})
    assert grant.reason == "server 'y': the step is full"


def test_a_server_that_cannot_be_asked_gets_the_others_released_and_is_named() -> None:
    log: list[str] = []

    def answer(server: str, asked: str, told: dict[str, Any]) -> Any:
        log.append(f"{server}:{asked}")
        return StateError("OFFLINE") if server == "x" else good(server, asked, told)

    with pytest.raises(StateError, match="Server 'x': OFFLINE"):
        run(taking(), answer)
    assert log == ["z:train", "x:train", "z:abort"]


def test_a_reservation_that_was_not_kept_releases_all() -> None:
    grant, log = run(taking(), but(x_confirm=EpisodeGone("expired")))
    assert log[-1] == ["z:abort", "x:abort", "y:abort"]
    assert (grant.outcome, "'x' did not keep its reservation" in grant.reason) == ("wait", True)


def test_a_trained_server_plays_along_and_needs_no_confirmation() -> None:
    grant, log = run(taking(), but(x_train=TRAINED))
    assert log == [["z:train"], ["x:train"], ["y:train"], ["x:eval"], ["z:confirm", "y:confirm"]]
    assert [s for s, m in grant.members.items() if not m.trains] == ["x"]
    assert grant.episode_id == "ep-y"


def test_when_nobody_trains_any_more_training_is_complete() -> None:
    trained = but(x_train=TRAINED, y_train=TRAINED, z_train=TRAINED)
    grant, log = run(taking(), trained)
    assert (grant.outcome, grant.members) == (GrantOutcome.TRAINING_COMPLETE, {})
    assert log == [["z:train"], ["x:train"], ["y:train"]]
    grant, log = run(taking(when_trained="stop"), but(x_train=TRAINED))
    assert (grant.outcome, log[-1]) == (GrantOutcome.TRAINING_COMPLETE, ["z:abort"])


def test_guests_are_asked_last_and_one_training_server_needs_no_reservation() -> None:
    asked: dict[str, dict[str, Any]] = {}

    def answer(server: str, kind: str, told: dict[str, Any]) -> Any:
        asked[server] = told
        return good(server, kind, told)

    _, log = run(taking(guests=frozenset({"z", "x"})), answer)
    assert log == [["y:train"], ["z:eval"], ["x:eval"]]
    assert {a["reserve_s"] for a in asked.values()} == {None}


def test_an_evaluation_takes_eval_episodes_of_all() -> None:
    grant, log = run(taking(kind=EpisodeKind.EVAL), good)
    assert log == [["z:eval"], ["x:eval"], ["y:eval"]]
    assert grant.episode_id == "ep-x"


def test_roles_that_share_a_server_get_keys_and_a_refused_key_releases_all() -> None:
    roles = {"a": "x", "b": GroupRole("x", train=False), "c": "y"}
    cast = cast_of(["x", "y"], roles, None)
    grant, log = run(taking(cast, order=("x", "y")), good)
    assert log[-1] == ["x:agents", "x:agents"]
    assert {n: k.train for n, k in grant.members["x"].keys.items()} == {"a": True, "b": False}
    assert grant.members["y"].keys == {}
    with pytest.raises(SwarmError, match="Server 'x': full"):
        run(taking(cast, order=("x", "y")), but(x_agents=SwarmError("full")))


def test_a_server_none_of_whose_roles_trains_only_plays_along() -> None:
    cast = cast_of(["x", "y"], {"a": GroupRole("x", train=False), "b": "y"}, None)
    grant, log = run(taking(cast, order=("x", "y")), good)
    assert log == [["y:train"], ["x:eval"]]
    assert grant.episode_id == "ep-y"
