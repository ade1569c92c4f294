"""The misbehaving proxy, between a real client and a real server: each trouble does what its name says."""

from contextlib import contextmanager

import pytest

from swarm.client import SwarmClient
from swarm.client.errors import WaitTimeout
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import ServerUnreachable, SwarmError
from swarm.testing.chaos.proxy import Trouble, chaos_proxy
from swarm.testing.live_server import live_server

CONFIG = {"engine": "toy", "batch": {"tasks": 4, "repeat": 2}, "stop_at_step": 3}


@pytest.fixture
def server(tmp_path):
    with live_server(tmp_path / "state") as live:
        with SwarmClient(live.url, live.tokens.admin) as admin:
            admin.configure(CONFIG)
            admin.start()
        yield live


@contextmanager
def through(server, **options):
    """(client through a proxy, the proxy)."""
    port = int(server.url.rpartition(":")[2])
    with (
        chaos_proxy(port, **options) as proxy,
        SwarmClient(proxy.url, server.tokens.admin, "client", timeout_s=5.0) as client,
    ):
        yield client, proxy


def play(client, task="t0"):
    with client.episode(task, grant_timeout_s=10) as episode:
        episode.chat([{"role": "user", "content": "Hello."}])
        return episode.finish(1.0)


def test_without_an_order_everything_passes(server):
    with through(server) as (client, proxy):
        assert play(client).accepted
        assert not proxy.done


@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_finish_that_meets_trouble_is_accepted_once(server, trouble):
    with through(server) as (client, proxy):
        with client.episode("t0", grant_timeout_s=10) as episode:
            episode.chat([{"role": "user", "content": "Hello."}])
            proxy.order(trouble, "/finish")
            assert episode.finish(1.0).accepted
        assert dict(proxy.done) == {trouble: 1}
        assert not proxy.pending
        for _ in range(4):  # what was kept back for later comes now
            client.status()
        assert client.pool().episodes_finished == 1


@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_grant_that_meets_trouble_takes_one_seat(server, trouble):
    with through(server) as (client, proxy):
        client.register()
        proxy.order(trouble, "/swarm/episodes")
        grant = client.grant(GrantRequest(client_id="client", task_id="t0"))
        assert grant.episode_id
        for _ in range(4):
            client.status()
        assert client.pool().episodes_open == 1


@pytest.mark.parametrize(
    "trouble", [Trouble.REFUSE, Trouble.CUT_REQUEST, Trouble.CUT_ANSWER, Trouble.SWALLOW_ANSWER]
)
def test_a_call_that_is_cut_fails_and_is_not_sent_again(server, trouble):
    with through(server) as (client, proxy):
        proxy.order(trouble, "/chat/completions")
        with pytest.raises(ServerUnreachable):
            play(client)
        assert dict(proxy.done) == {trouble: 1}
        assert play(client).accepted


def test_troubles_by_chance_repeat_no_call_and_cost_no_episode(server):
    with through(server, rate=0.3, seed=4) as (client, proxy):
        accepted = 0
        for _ in range(60):
            try:
                accepted += play(client, f"t{accepted // 2}").accepted
            except (SwarmError, WaitTimeout):
                continue
            if accepted == 8:
                break
        assert accepted == 8
        assert proxy.done.total() > 8
        assert client.wait_step(0, timeout_s=20).step == 1
        (metrics,) = client.metrics()
        assert metrics.episodes == 8
