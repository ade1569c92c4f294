"""The throttle keeps a client that asked for it at its fair share, and nobody ever waits for ever because of it."""

import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from swarm.protocol.clients import ClientRegistration
from swarm.protocol.config import BatchConfig, EpisodeLimits, TrainConfig
from swarm.protocol.episodes import AbortRequest, FinishRequest, Grant
from swarm.protocol.pool import TaskQueue
from swarm.protocol.states import GrantOutcome
from swarm.server.service.throttle import must_wait
from swarm.testing import ManualClock, retry_until
from swarm.testing.server_fixture import take, toy_service

GRANTED = GrantOutcome.GRANTED


@given(
    granted=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 40)),
    left=st.integers(1, 40),
    rivals=st.sets(st.sampled_from("bcd")),
    throttle=st.floats(1.0, 4.0),
)
def test_whoever_is_behind_never_waits_so_somebody_always_goes_on(granted, left, rivals, throttle):
    active = {"a", *rivals}
    waiting = {name for name in active if must_wait(name, granted, left, active - {name}, throttle)}
    assert waiting < active
    if waiting:
        share = (left + sum(granted.get(name, 0) for name in active)) / len(active)
        assert all(granted.get(name, 0) >= share for name in waiting)


def test_alone_nobody_waits_and_a_larger_throttle_lets_a_client_lead():
    assert not must_wait("a", {"a": 99}, 1, [], 1.0)
    assert must_wait("a", {"a": 6, "b": 2}, 4, ["b"], 1.0)
    assert not must_wait("a", {"a": 6, "b": 2}, 4, ["b"], 1.5)


def join(service, *names):
    for name in names:
        service.register(ClientRegistration(client_id=name))


async def give(service, grant, reward=0.0):
    await service.finish(grant.episode_id, FinishRequest(reward=reward))


async def as_many_as_it_gets(service, client, first=0, **more):
    """Ask for new tasks until one is not granted; returns the grants and why it ended."""
    grants: list[Grant] = []
    while True:
        grant = await take(
            service, f"{client}{first + len(grants)}", client_id=client, throttle=1.0, **more
        )
        if grant.outcome is not GRANTED:
            return grants, grant.reason
        grants.append(grant)


@pytest.mark.parametrize("policy", ["C1", "C2", "C3"])
async def test_a_fast_client_leaves_a_slow_one_its_share(tmp_path, make_config, policy):
    config = make_config(policy=policy, tasks=8, repeat=1)
    async with toy_service(tmp_path, config, clock=ManualClock()) as service:
        slow = await take(service, "s0", client_id="slow")
        fast, why = await as_many_as_it_gets(service, "fast")
        assert len(fast) == 4
        assert "leads its fair share" in why
        rest, _ = await as_many_as_it_gets(service, "slow", first=1)
        assert len(rest) == 3
        assert slow.outcome is GRANTED


async def test_alone_a_throttled_client_takes_everything(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=6, repeat=1), clock=clock) as service:
        grants, why = await as_many_as_it_gets(service, "fast")
        assert len(grants) == 6
        assert "opened all the groups" in why


async def test_members_of_a_group_that_a_client_began_are_never_throttled(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=2, repeat=4), clock=clock) as service:
        await take(service, "s0", client_id="slow")
        for _ in range(4):
            assert (await take(service, "f0", client_id="fast", throttle=1.0)).outcome is GRANTED


async def test_seats_of_shared_groups_are_throttled_too(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=8), clock=clock) as service:
        service.put_task_queue("default", TaskQueue(task_ids=["t"]))
        await take(service, "", client_id="slow")
        taken = [await take(service, "", client_id="fast", throttle=1.0) for _ in range(6)]
        assert [grant.outcome for grant in taken].count(GRANTED) == 4


async def test_a_held_request_goes_on_when_the_others_fell_silent(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=4, repeat=1), clock=clock) as service:
        await give(service, await take(service, "s0", client_id="slow"))
        grants, why = await as_many_as_it_gets(service, "fast")
        assert (len(grants), "leads" in why) == (2, True)
        held = asyncio.create_task(take(service, "more", client_id="fast", throttle=1.0, wait_s=60))
        await clock.advance(4)
        assert not held.done()
        await clock.advance(2)  # slow had its time to come back
        assert (await asyncio.wait_for(held, 5)).outcome is GRANTED


async def test_a_registered_client_that_never_asks_delays_only_at_first(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=4, repeat=1), clock=clock) as service:
        join(service, "fast", "monitor")
        grants, _ = await as_many_as_it_gets(service, "fast")
        assert len(grants) == 2
        await clock.advance(6)
        more, why = await as_many_as_it_gets(service, "fast", first=2)
        assert len(more) == 2
        assert "opened all" in why


async def test_a_client_that_died_with_episodes_open_delays_until_they_end(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=4, repeat=1, idle_deadline_s=20.0)
    async with toy_service(tmp_path, config, clock=clock) as service:
        await take(service, "d0", client_id="dead")
        grants, why = await as_many_as_it_gets(service, "fast")
        assert (len(grants), "leads" in why) == (2, True)
        for grant in grants:
            await give(service, grant)
        await clock.advance(19)
        assert (await take(service, "x", client_id="fast", throttle=1.0)).outcome is not GRANTED
        await clock.advance(10)
        more, _ = await as_many_as_it_gets(service, "fast", first=2)
        assert len(more) == 1
        assert (await take(service, "d0", client_id="fast", throttle=1.0)).outcome is GRANTED


async def test_a_client_that_played_in_the_last_step_is_waited_for_in_the_next(
    tmp_path, make_config
):
    clock = ManualClock()
    config = make_config(tasks=4, repeat=1, stop_at_step=3)
    async with toy_service(tmp_path, config, clock=clock) as service:
        for i, name in enumerate(["slow", "fast", "slow", "fast"]):
            await give(service, await take(service, f"t{i}", client_id=name))
        await retry_until(lambda: service.status().step == 1)
        grants, why = await as_many_as_it_gets(service, "fast")
        assert (len(grants), "leads" in why) == (2, True)


async def test_under_a_mix_only_clients_of_the_same_set_are_waited_for(tmp_path, make_config):
    clock = ManualClock()
    config = make_config(tasks=8, repeat=1, mix={"a": 0.5, "b": 0.5})
    async with toy_service(tmp_path, config, clock=clock) as service:
        await take(service, "s0", client_id="other", task_set="b")
        grants, why = await as_many_as_it_gets(service, "fast", task_set="a")
        assert len(grants) == 4
        assert "opened all the groups of 'a'" in why


# -- nobody waits for ever ----------------------------------------------------------------------------------

MANNERS = ("steady", "steady", "slow", "idle", "dies", "stubborn", "failing")


@dataclass
class Player:
    """A client with bad manners, or without."""

    name: str
    manner: str
    task_set: str
    throttle: float | None
    hold: bool
    open: list[Grant] = field(default_factory=list)
    held: asyncio.Task[Grant] | None = None
    asked: int = 0


class Race:
    """Players at one service whose clock only moves when nothing else does."""

    def __init__(self, service, clock, players, seed):
        self.service, self.clock, self.players = service, clock, players
        self.rng = random.Random(seed)

    async def run(self, until_step, within_s):
        """Play until the server is at ``until_step``; fails when that takes longer than ``within_s`` of the clock."""
        while self.service.status().step < until_step:
            moved = [await self.turn(player) for player in self.players]
            assert self.clock.monotonic() < within_s, self.service.status().waiting_for
            await self.clock.advance(0.0 if any(moved) else 1.0)
        for player in self.players:
            if player.held is not None:
                player.held.cancel()

    async def turn(self, player):
        if player.manner == "idle" or (player.manner == "dies" and player.asked >= 3):
            return False
        moved = False
        if player.open and self.rng.random() < (0.2 if player.manner == "slow" else 0.7):
            await self.end(player)
            moved = True
        if len(player.open) < 3:
            moved |= await self.ask(player)
        return moved

    async def end(self, player):
        grant = player.open.pop(0)
        if player.manner == "failing":
            await self.service.abort(grant.episode_id, AbortRequest())
        else:
            await self.service.finish(grant.episode_id, FinishRequest(reward=self.rng.random()))

    async def ask(self, player):
        if player.held is not None and not player.held.done():
            return False
        if player.held is not None:
            grant, player.held = player.held.result(), None
        else:
            request = take(
                self.service,
                self.task(player),
                client_id=player.name,
                task_set=player.task_set,
                throttle=player.throttle,
                wait_s=20.0 if player.hold else 0.0,
            )
            if player.hold:
                player.held = asyncio.create_task(request)
                await asyncio.sleep(0)
                return False
            grant = await request
        if grant.outcome is GRANTED:
            player.open.append(grant)
            player.asked += 1
        return grant.outcome is GRANTED

    def task(self, player):
        if player.manner == "stubborn":
            return "only this"
        wanted = [w for w in self.service.pool().wanted if w.task_set == player.task_set]
        return wanted[0].task_id if wanted else f"{player.name}{self.rng.randrange(10**9)}"


players = st.lists(
    st.tuples(
        st.sampled_from(MANNERS),
        st.sampled_from("ab"),
        st.sampled_from([None, 1.0, 1.0, 2.0]),
        st.booleans(),
    ),
    max_size=4,
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a race takes minutes
)
@given(
    policy=st.sampled_from(["C1", "C2", "C3"]),
    repeat=st.integers(1, 3),
    mixed=st.booleans(),
    others=players,
    hold=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_steps_end_whatever_the_clients_do_as_long_as_each_set_has_a_steady_one(
    policy, repeat, mixed, others, hold, seed
):
    everybody = [("steady", "a", 1.0, hold), ("steady", "b", 1.0, hold), *others]
    config = TrainConfig(
        engine="toy",
        stop_at_step=2,
        batch=BatchConfig(
            tasks=4,
            repeat=repeat + (policy == "C3"),
            policy=policy,
            drain_deadline_s=0.0,
            mix={"a": 0.5, "b": 0.5} if mixed else {},
        ),
        episode=EpisodeLimits(idle_deadline_s=10.0),
    )

    async def race():
        clock = ManualClock()
        with tempfile.TemporaryDirectory() as folder:
            async with toy_service(Path(folder), config, clock=clock) as service:
                names = [Player(f"p{i}", *how) for i, how in enumerate(everybody)]
                join(service, *(player.name for player in names))
                await Race(service, clock, names, seed).run(2, within_s=300.0)
                assert service.status().step == 2

    asyncio.run(race())


async def test_a_throttled_swift_client_leaves_a_slow_one_more_of_each_step(tmp_path, make_config):
    shares = {}
    for throttle in (None, 1.0):
        clock = ManualClock()
        config = make_config(tasks=20, repeat=1, stop_at_step=4, idle_deadline_s=50.0)
        async with toy_service(tmp_path / str(throttle), config, clock=clock) as service:
            swift = Player("swift", "steady", "default", throttle, hold=False)
            slow = Player("slow", "slow", "default", throttle, hold=False)
            join(service, "swift", "slow")
            await Race(service, clock, [swift, slow], 5).run(4, within_s=2000.0)
            total = sum((Counter(record.clients) for record in service.metrics(0)), Counter())
            shares[throttle] = total["slow"] / sum(total.values())
    assert shares[None] < 0.4 < 0.48 < shares[1.0]


async def test_a_client_that_only_fails_lets_others_go_first(tmp_path, make_config):
    clock = ManualClock()
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2), clock=clock) as service:
        await give(service, await take(service, "t", client_id="good"))
        for _ in range(3):
            broken = await take(service, "t", client_id="broken")
            await service.abort(broken.episode_id, AbortRequest())
        waits = await take(service, "t", client_id="broken")
        assert "has only failed of late" in waits.reason
        assert (await take(service, "t", client_id="good")).outcome is GRANTED


async def test_a_client_that_only_fails_goes_on_when_it_is_alone(tmp_path, make_config):
    async with toy_service(tmp_path, make_config(tasks=1, repeat=2)) as service:
        for _ in range(5):
            grant = await take(service, "t", client_id="broken")
            assert grant.outcome is GRANTED
            await service.abort(grant.episode_id, AbortRequest())
