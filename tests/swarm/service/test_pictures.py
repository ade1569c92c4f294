"""Training on pictures: what rows hold, and that a run goes on with them after any death."""

import base64

import pytest

from swarm.client import SwarmClient
from swarm.protocol.episodes import FinishRequest
from swarm.protocol.errors import SwarmError
from swarm.protocol.states import EngineState
from swarm.server.keys import Tokens
from swarm.server.pictures.intake import Album, Intake
from swarm.server.service.calls import ChatCall
from swarm.testing import ToyFleet, retry_until
from swarm.testing.chaos.processes import Program, free_port
from swarm.testing.chaos.world import server_command
from swarm.testing.pictured_model import make_pictured_model, png
from swarm.testing.server_fixture import reply_to, take, toy_service

COLOURS = (png(255), png(0, 255), png(0, 0, 255))


def shown(*pieces):
    """A message of the user, and the pictures of its call."""
    intake = Intake(Album())
    parts = [
        intake.base64(base64.b64encode(piece).decode(), "here")
        if isinstance(piece, bytes)
        else {"type": "text", "text": piece}
        for piece in pieces
    ]
    return {"role": "user", "content": parts}, intake.found


@pytest.fixture
def config(make_config, tmp_path):
    path = make_pictured_model(tmp_path / "model")
    return make_config(tasks=1, repeat=2, stop_at_step=3, model={"path": path})


async def play(service, task, *, turns=2):
    """Play one episode: look at a colour, then at another one."""
    grant = await take(service, task, wait_s=30.0)
    episode = service.episode_for_key(grant.api_key)
    messages, seen = [], {}
    for turn in range(turns):
        message, found = shown("what is ", COLOURS[(int(task[1:]) + turn) % 3], "?")
        seen |= found
        messages.append(message)
        reply = await reply_to(service, episode, ChatCall(messages=list(messages), pictures=seen))
        messages.append(reply.message)
    await service.finish(grant.episode_id, FinishRequest(reward=float(episode.repeat_index)))


async def play_step(service, members=2):
    step = service.status().step
    for _ in range(members):
        await play(service, f"t{step}")
    await retry_until(lambda: service.status().step > step)


async def test_rows_hold_the_pictures_that_their_ids_stand_for(tmp_path, config):
    fleet = ToyFleet()
    async with toy_service(tmp_path / "run", config, fleet=fleet) as service:
        await play_step(service)
        token = service._core.tokenizer.image_token
        rows = fleet.latest.batches[0].rows
        assert rows
        for row in rows:
            assert row.images == list(COLOURS[:2])
            assert row.ids.count(token) == 2
            assert all(token not in row.ids[s.start : s.end] for s in row.spans)


async def test_a_resumed_run_trains_the_same_rows_and_keeps_each_picture_once(tmp_path, config):
    async with toy_service(tmp_path / "calm", config) as calm:
        for _ in range(3):
            await play_step(calm)
        wanted = [m.fingerprint for m in calm.metrics(0)]
    async with toy_service(tmp_path / "run", config) as service:
        await play_step(service)
        await play(service, "t1")
    fleet = ToyFleet()
    async with toy_service(tmp_path / "run", fleet=fleet, resume=True) as service:
        assert fleet.latest.batches[0].rows[0].images == list(COLOURS[:2])
        await play(service, "t1")
        await retry_until(lambda: service.status().step > 1)
        kept = service._core.journal._db.rows("SELECT sha256 FROM pictures")
        assert len(kept) == 3
        await play_step(service)
        assert [m.fingerprint for m in service.metrics(0)] == wanted


async def test_pictures_leave_the_memory_of_an_episode_with_its_end(tmp_path, config):
    async with toy_service(tmp_path / "run", config) as service:
        grant = await take(service, "t0")
        episode = service.episode_for_key(grant.api_key)
        message, found = shown("what?", COLOURS[0])
        await reply_to(service, episode, ChatCall(messages=[message], pictures=found))
        assert len(episode.tree.pictures) == 1
        await service.finish(grant.episode_id, FinishRequest(reward=1.0))
        assert episode.tree.pictures == {}


def ask(client, task):
    """Play one episode over HTTP: look at a colour, then at another one."""
    with client.episode(task) as episode:
        messages = []
        for turn in range(2):
            colour = base64.b64encode(COLOURS[(int(task[1:]) + turn) % 3]).decode()
            part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{colour}"}}
            messages.append({"role": "user", "content": [{"type": "text", "text": "?"}, part]})
            messages.append(episode.chat(messages).message)
        episode.finish(float(client.trace(episode.id, calls_too=False).repeat_index))


class Server:
    """A server whose engine is a process of its own, killed and started again on the same folder."""

    def __init__(self, folder):
        (folder / "shots").mkdir(parents=True)
        self.tokens = Tokens.load(folder / "state")
        port = free_port()
        self.program = Program(
            "server", server_command(folder, port), folder / "log", folder / "shots"
        )
        self.client = SwarmClient(f"http://127.0.0.1:{port}", self.tokens.admin, "player")

    def state(self):
        """Where it stands; None while it does not answer."""
        try:
            return self.client.status()
        except SwarmError:
            return None

    async def until(self, condition):
        def reached():
            status = self.state()
            return status is not None and condition(status)

        await retry_until(reached)

    async def start(self):
        self.program.keep()
        await self.until(lambda status: True)

    async def step(self, members=2):
        """Play what is left of the open step."""
        step = self.client.status().step
        for _ in range(members):
            ask(self.client, f"t{step}")
        await self.until(lambda status: status.step > step)

    def fingerprints(self):
        return [m.fingerprint for m in self.client.metrics(0)]


@pytest.mark.slow
async def test_a_server_killed_in_the_middle_trains_on_the_same_pictures(tmp_path, config):
    calm, killed = Server(tmp_path / "calm"), Server(tmp_path / "killed")
    try:
        for server in (calm, killed):
            await server.start()
            server.client.configure(config)
            server.client.start()
            await server.until(lambda status: status.state is EngineState.ROLLING)
            await server.step()
        ask(killed.client, "t1")
        killed.program.kill()
        await killed.start()
        await killed.until(lambda status: status.state is EngineState.ROLLING)
        await killed.step(1)
        await killed.step()
        await calm.step()
        await calm.step()
        assert killed.fingerprints() == calm.fingerprints()
        assert len(calm.fingerprints()) == 3
    finally:
        for server in (calm, killed):
            server.program.end()
