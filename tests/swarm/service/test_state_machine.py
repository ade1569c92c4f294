"""The control API against a plain model in memory, by Hypothesis: any order of requests, losses, restarts and passing time.

The server runs in this process behind its real routes, on a clock that stands still; ``swarm.testing.control_model`` says what
it must answer. After every rule the whole state is compared.
"""

import asyncio
import json
import math
import shutil
import tempfile
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from swarm.protocol.config import BatchConfig, CheckpointConfig, EpisodeLimits, TrainConfig
from swarm.protocol.states import CollectionPolicy, EpisodeKind, EpisodeState, GroupRule
from swarm.server.keys import Tokens
from swarm.server.routes.app import create_app
from swarm.server.service.commits import COMMIT_WITHIN_S
from swarm.server.service.service import SwarmService
from swarm.testing import ManualClock, ToyFleet, retry_until, settle
from swarm.testing.control_model import ControlModel, ModelEpisode, Phase, Rules

CLIENTS = st.sampled_from(["ann", "bob"])
TASKS = st.sampled_from(["t0", "t1", "t2"])
WHICH = st.integers(0, 11)
MOVES = (
    "call",
    "call",
    "finish",
    "finish",
    "prepare",
    "commit",
    "abort",
    "confirm",
    "finish_badly",
)
BAD_REWARDS = st.sampled_from([math.nan, math.inf, 1e12])
REWARDS = st.sampled_from([0.0, 1.0])
POLICIES = (CollectionPolicy.C1, CollectionPolicy.C2, CollectionPolicy.C3)
IDLE_S, TOTAL_S, LEASE_S, DRAIN_S = 10.0, 40.0, 25.0, 0.1


class ControlApi(RuleBasedStateMachine):
    """Every rule sends one request (or lets something happen) and tells the model the same."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.base = Path(tempfile.mkdtemp(prefix="swarm-machine-"))
        self.lives = 0
        self.clock = ManualClock()
        self.fleet = ToyFleet()
        self.keys = {}

    def do(self, work):
        return self.loop.run_until_complete(work)

    @initialize(
        policy=st.sampled_from(POLICIES),
        group_rule=st.sampled_from(list(GroupRule)),
        repeat=st.integers(1, 3),
    )
    def begin(self, policy, group_rule, repeat):
        batch = BatchConfig(
            tasks=2,
            repeat=repeat,
            policy=policy,
            group_rule=group_rule,
            max_groups_factor=2,
            drain_deadline_s=DRAIN_S,
        )
        self.config = TrainConfig(
            engine="toy",
            stop_at_step=3,
            batch=batch,
            episode=EpisodeLimits(idle_deadline_s=IDLE_S, total_deadline_s=TOTAL_S),
            checkpoint=CheckpointConfig(every_steps=2, keep=1),
        )
        self.model = ControlModel(
            Rules(
                tasks=2,
                repeat=repeat,
                stop_at_step=3,
                policy=policy,
                rule=group_rule,
                tries_factor=2,
                idle_s=IDLE_S,
                total_s=TOTAL_S,
                lease_s=LEASE_S,
                promise_s=COMMIT_WITHIN_S,
                drain_s=DRAIN_S,
            )
        )
        self.do(self.open(self.base / "0", resume=False))
        self.ask("PUT", "/swarm/config", json=self.config.model_dump(mode="json"))
        self.ask("POST", "/swarm/engine/start")
        self.catch_up()

    # -- the server -----------------------------------------------------------------------------------------

    async def open(self, folder, *, resume):
        self.folder = folder
        self.tokens = Tokens.load(folder)
        self.service = await SwarmService.open(
            state_dir=folder,
            engine_factory=self.fleet,
            tokens=self.tokens,
            clock=self.clock,
            lease_s=LEASE_S,
            resume=resume,
        )
        app = create_app(self.service, self.tokens)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://test",
            headers={"authorization": f"Bearer {self.tokens.admin}"},
        )

    async def close(self):
        await self.http.aclose()
        await self.service.close()

    def teardown(self):
        if hasattr(self, "service"):
            self.do(self.close())
        self.loop.close()
        shutil.rmtree(self.base)

    def ask(self, method, path, *, expect=200, **kwargs):
        answer = self.do(self.http.request(method, path, **kwargs))
        assert answer.status_code == expect, (method, path, answer.text)
        return answer.json()

    def catch_up(self):
        """Let the server's own tasks run until it is where the model is."""

        def there():
            status = self.service.status()
            return (status.state.value, status.step) == (self.model.phase.value, self.model.step)

        self.do(retry_until(there, what=f"{self.model.phase}, step {self.model.step}"))
        self.do(settle())

    # -- clients --------------------------------------------------------------------------------------------

    @rule(client=CLIENTS, anew=st.booleans())
    def a_client_speaks(self, client, anew):
        """Registers (anew), or renews its lease."""
        if anew:
            self.ask("POST", "/swarm/clients", json={"client_id": client})
            self.model.register(client)
            return
        known = client in self.model.leases
        self.ask("POST", f"/swarm/clients/{client}/heartbeat", expect=200 if known else 404)
        self.model.seen(client)

    def pick(self, which):
        """One of the open episodes, or of the few that ended last."""
        known = list(self.model.episodes.values())
        some = [*filter(lambda e: e.is_open, known), *[e for e in known if not e.is_open][-3:]]
        return some[which % len(some)]

    # -- grants ---------------------------------------------------------------------------------------------

    @rule(
        client=CLIENTS,
        tasks=st.lists(TASKS, min_size=1, max_size=4),
        kind=st.sampled_from([*[EpisodeKind.TRAIN] * 5, EpisodeKind.EVAL]),
        reserve_s=st.sampled_from([None, None, 5.0]),
    )
    def grants(self, client, tasks, kind, reserve_s):
        for task in tasks:
            self.take(client, task, kind, reserve_s)

    @rule(client=CLIENTS, rewards=st.lists(REWARDS, min_size=1, max_size=8))
    def play(self, client, rewards):
        """Whole episodes, of the tasks that are wanted."""
        for reward in rewards:
            wanted = [g.task for g in self.model.groups if g.missing]
            episode = self.take(client, wanted[0] if wanted else f"t{len(self.model.groups)}")
            if episode is None:
                return
            self.call(episode)
            self.finish(episode, reward)
            self.catch_up()

    def take(self, client, task, kind=EpisodeKind.TRAIN, reserve_s=None):
        """Ask for one episode; None when the model says that there is none now."""
        body = {"client_id": client, "kind": kind, "task_id": task}
        body["request_id"] = f"{len(self.model.episodes)}-{self.model.now}"
        if reserve_s:
            body["reserve_s"] = reserve_s
        seat = self.model.seat_for(task, kind)
        answer = self.ask("POST", "/swarm/episodes", json=body)
        self.model.seen(client)
        if isinstance(seat, str):
            assert answer["outcome"] == seat
            return None
        if "only failed of late" in answer.get("reason", ""):
            assert self.model.failures[client] >= 3
            return None
        assert answer["outcome"] == "granted", answer
        assert (answer["group_id"], answer["repeat_index"]) == seat
        now = self.model.now
        episode = ModelEpisode(
            answer["episode_id"], kind, client, *seat, self.model.step, now, now, reserve_s or 0.0
        )
        self.model.grant(episode, task)
        self.keys[episode.episode_id] = answer["api_key"]
        again = self.ask("POST", "/swarm/episodes", json=body)
        assert again["episode_id"] == episode.episode_id
        return episode

    def confirm(self, episode):
        path = f"/swarm/episodes/{episode.episode_id}/confirm"
        self.ask("POST", path, expect=200 if episode.is_open else 410)
        if episode.is_open:
            self.model.seen(episode.client)
            self.model.confirm(episode)

    @precondition(lambda self: self.model.episodes)
    @rule(which=WHICH, how=st.sampled_from(MOVES), reward=REWARDS, bad=BAD_REWARDS)
    def an_episode_goes_on(self, which, how, reward, bad):
        """One request of, or about, one of the open episodes or of the few that ended last."""
        episode = self.pick(which)
        if how in ("finish", "prepare"):
            getattr(self, how)(episode, reward)
        elif how == "finish_badly":
            self.finish_badly(episode, bad)
        else:
            getattr(self, how)(episode)

    # -- calls ----------------------------------------------------------------------------------------------

    def call(self, episode):
        can = episode.is_open and not episode.prepared and self.model.phase is not Phase.OFFLINE
        answer = self.ask(
            "POST",
            "/v1/chat/completions",
            expect=200 if can else 410,
            headers={"authorization": f"Bearer {self.keys[episode.episode_id]}"},
            json={"model": "policy", "messages": [{"role": "user", "content": "Hello."}]},
        )
        if can:
            self.model.called(episode, answer["usage"]["completion_tokens"])

    # -- ends -----------------------------------------------------------------------------------------------

    def end(self, episode, verb, **kwargs):
        return self.ask("POST", f"/swarm/episodes/{episode.episode_id}/{verb}", **kwargs)

    def finish(self, episode, reward):
        reply = self.end(episode, "finish", json={"reward": reward})
        self.model.finish(episode, reward)
        assert (reply["state"], reply["accepted"]) == (episode.state.value, episode.accepted)

    def finish_badly(self, episode, value):
        refused = episode.is_open and not episode.prepared
        body = json.dumps({"reward": value}).encode()
        self.end(episode, "finish", content=body, expect=422 if refused else 200)
        if refused:
            self.model.seen(episode.client)
        else:
            self.model.finish(episode, 0.0)

    def prepare(self, episode, reward):
        reply = self.end(episode, "prepare", json={"reward": reward})
        self.model.prepare(episode, reward)
        assert reply["prepared"] == (episode.prepared or episode.accepted)

    def commit(self, episode):
        refused = episode.is_open and not episode.prepared
        reply = self.end(episode, "commit", expect=409 if refused else 200)
        if refused:
            self.model.seen(episode.client)
            return
        self.model.finish(episode, math.nan)
        assert (reply["state"], reply["accepted"]) == (episode.state.value, episode.accepted)

    def abort(self, episode):
        reply = self.end(episode, "abort", json={})
        self.model.abort(episode)
        assert (reply["state"], reply["accepted"]) == (episode.state.value, episode.accepted)

    # -- what happens to a server ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0, 31.0]))
    def time_passes(self, seconds):
        self.do(self.clock.advance(seconds))
        self.model.advance(seconds)

    @rule(what=st.sampled_from(["the_engine_dies", "stop", "start", "restart"]))
    def something_happens(self, what):
        getattr(self, what)()

    def the_engine_dies(self):
        if self.model.phase is Phase.OFFLINE:
            return
        before = self.service.status().engine_restarts
        if before - self.restarts_at_step() >= 4:
            return
        self.fleet.latest.kill()
        self.do(retry_until(lambda: self.service.status().engine_restarts == before + 1))

    def restarts_at_step(self):
        """Engine restarts before the open step: only so many are allowed within one."""
        status = self.service.status()
        mark = getattr(self, "_mark", (None, 0))
        if mark[0] != (status.step, self.lives):
            mark = self._mark = ((status.step, self.lives), status.engine_restarts)
        return mark[1]

    def stop(self):
        self.ask("POST", "/swarm/engine/stop")
        self.model.stop()

    def start(self):
        self.ask("POST", "/swarm/engine/start")
        self.model.start()

    def restart(self):
        """The process is killed. Its files as they are at this moment are all that the next process has."""
        self.lives += 1
        after = self.base / str(self.lives)
        shutil.copytree(self.folder, after)
        self.do(self.close())
        self.do(self.open(after, resume=True))
        self.ask("POST", "/swarm/engine/start")
        self.model.restart()

    # -- what must hold after every rule --------------------------------------------------------------------

    @invariant()
    def the_server_is_what_the_model_is(self):
        if not hasattr(self, "service"):
            return
        self.catch_up()
        status = self.service.status()
        assert status.policy_version.n == self.model.version
        assert status.open_episodes == len(self.model.open_episodes())
        self.check_episodes()
        self.check_history()
        if self.model.phase is not Phase.OFFLINE:
            self.check_pool()

    def check_episodes(self):
        for episode in self.model.episodes.values():
            trace = self.service.trace(episode.episode_id, calls=False)
            assert trace.state is episode.state, episode
            if episode.state is EpisodeState.FINISHED:
                assert trace.reward == episode.reward

    def check_pool(self):
        pool = self.service.pool()
        alive = [g for g in self.model.groups if not g.dropped]
        assert pool.episodes_finished == sum(len(g.finished) for g in alive)
        assert pool.episodes_open == sum(len(g.members) - len(g.finished) for g in alive)
        assert pool.groups_complete == sum(g.complete for g in alive)
        if self.model.phase is Phase.ROLLING:
            wanted = [(w.task_id, w.missing) for w in pool.wanted]
            assert wanted == [(g.task, g.missing) for g in alive if g.missing]

    def check_history(self):
        metrics = self.service.metrics(0)
        assert [m.step for m in metrics] == list(range(1, self.model.step + 1))
        for m in metrics:
            assert m.updated == self.model.updated[m.step]
            assert m.episodes == len(self.model.consumed[m.step])
            booked = sum(n for fate, n in m.tokens.items() if fate != "dropped:eval")
            assert booked == self.model.account[m.step], m.tokens


def run(examples, steps, **options):
    run_state_machine_as_test(
        ControlApi,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


def test_the_control_api_does_what_its_model_does():
    run(20, 40, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_control_api_does_what_its_model_does_in_orders_nobody_has_seen_before():
    run(40, 50, print_blob=True)
