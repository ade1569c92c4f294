"""Requests among replicas that die, without Ray: servers are small fakes."""

import msgspec
import pytest

from swarm.server.constraints import Grammars
from swarm.server.engine_verl.pictures import UnreadablePicture
from swarm.server.engine_verl.rollout import Rollout
from swarm.server.model_files import resolve_model
from swarm.server.ports import GenerateRequest
from swarm.testing.fake_replica import FakeServer
from swarm.testing.waiting import retry_until

GRAMMARS = Grammars(resolve_model("builtin:tiny-calc"), 64, [0])


def ask(name, *, stream=False, affinity=None, **changes):
    return GenerateRequest(
        name, [1, 2], 8, 1.0, [], "key", affinity or name, stream=stream, **changes
    )


class VLLMValidationError(Exception):
    """Known by its name, as in production."""


class Picky(FakeServer):
    """Takes no temperature above 2, as vLLM."""

    async def _pieces(self, request):
        if request["params"]["temperature"] > 2:
            raise VLLMValidationError("temperature must be in [0, 2]")
        async for piece in super()._pieces(request):
            yield piece


class Bench:
    """A rollout, what it said of deaths, and the chunks that came so far."""

    def __init__(self, servers, **options):
        self.deaths = []
        self.chunks = []
        self.rollout = Rollout(servers, GRAMMARS, on_death=self.deaths.append, **options)

    async def until(self, count):
        """Wait for the ends of that many requests."""

        def ended():
            self.chunks += self.rollout.collect()
            return sum(chunk.finish is not None for chunk in self.chunks) >= count

        await retry_until(ended, timeout_s=20)

    def ids(self, name):
        return [t for chunk in self.chunks if chunk.request_id == name for t in chunk.token_ids]

    def finish(self, name):
        (finish,) = [c.finish for c in self.chunks if c.request_id == name and c.finish]
        return finish


@pytest.fixture
def bench_of():
    made = []

    def make(*servers, **options):
        made.append(Bench(list(servers), **options))
        return made[-1]

    yield make
    for bench in made:
        bench.rollout.close()


async def test_requests_of_one_episode_go_to_one_replica(bench_of):
    servers = FakeServer([7]), FakeServer([8])
    bench = bench_of(*servers)
    for name in ("a", "b", "c"):
        bench.rollout.submit(ask(name, affinity="one"))
    bench.rollout.submit(ask("d"))
    await bench.until(4)
    homes = [tuple(bench.ids(name)) for name in ("a", "b", "c")]
    assert len(set(homes)) == 1
    assert sum(len(server.asked) for server in servers) == 4


async def test_a_dead_replica_s_request_is_answered_by_another(bench_of):
    first, second = FakeServer([7, 8], held=1), FakeServer([7, 8])
    bench = bench_of(first, second)
    bench.rollout.submit(ask("a"))
    await retry_until(lambda: first.asked, timeout_s=20)
    first.kill()
    await bench.until(1)
    assert (bench.ids("a"), bench.finish("a")) == ([7, 8], "stop")
    assert bench.deaths == [0]
    assert (list(bench.rollout.dead), bench.rollout.lost) == ([0], "")


async def test_a_dead_replica_s_stream_goes_on_where_it_was(bench_of):
    first, second = FakeServer([7, 8, 9], held=2), FakeServer([5, 6])
    bench = bench_of(first, second)
    bench.rollout.submit(ask("a", stream=True))
    await retry_until(lambda: first.asked, timeout_s=20)
    first.kill()
    await bench.until(1)
    assert bench.ids("a") == [7, 8, 5, 6]
    assert second.asked[0]["prompt"] == [1, 2, 7, 8]
    assert second.asked[0]["params"]["max_tokens"] == 6


async def test_a_stream_that_has_to_repeat_itself_and_cannot_ends_as_aborted(bench_of):
    first, second = FakeServer([7, 8, 9], held=2), FakeServer([7, 5, 6])
    bench = bench_of(first, second)
    bench.rollout.submit(ask("a", stream=True, stop=["x"]))
    await retry_until(lambda: first.asked, timeout_s=20)
    first.kill()
    await bench.until(1)
    assert (bench.ids("a"), bench.finish("a")) == ([7, 8], "abort")
    assert bench.rollout.lost == ""


async def test_without_a_living_replica_requests_wait_for_the_next(bench_of):
    only = FakeServer([7], held=0)
    bench = bench_of(only, versioned=True)
    bench.rollout.submit(ask("a"))
    await retry_until(lambda: only.asked, timeout_s=20)
    only.kill()
    await retry_until(lambda: bench.deaths, timeout_s=20)
    bench.rollout.submit(ask("b"))
    bench.rollout.revive(0, FakeServer([9]))
    await bench.until(2)
    assert (bench.ids("a"), bench.ids("b")) == ([9], [9])
    assert {tuple(chunk.versions) for chunk in bench.chunks} == {(3,)}
    assert bench.rollout.dead == {}


async def test_an_idle_replica_s_death_is_noticed_too(bench_of):
    only = FakeServer([7])
    bench = bench_of(only)
    await retry_until(lambda: only.watched, timeout_s=20)
    only.kill()
    await retry_until(lambda: bench.deaths == [0], timeout_s=20)


async def test_what_waits_for_a_replica_that_never_comes_ends_as_aborted(bench_of):
    only = FakeServer([7])
    bench = bench_of(only)
    await retry_until(lambda: only.watched, timeout_s=20)
    only.kill()
    await retry_until(lambda: bench.deaths, timeout_s=20)
    for name in ("a", "b"):
        bench.rollout.submit(ask(name))
    bench.rollout.abort("a")
    await bench.until(1)
    assert (bench.finish("a"), bench.rollout.lost) == ("abort", "")
    bench.rollout.give_up("no machine")
    await bench.until(2)
    assert (bench.finish("b"), bench.rollout.lost) == ("abort", "no machine")
    assert bench.rollout.load == 0


async def test_a_request_that_no_replica_survives_ends_sampling(bench_of):
    servers = [FakeServer([7], held=0) for _ in range(4)]
    bench = bench_of(*servers)
    await retry_until(lambda: all(server.watched for server in servers), timeout_s=20)
    bench.rollout.submit(ask("a"))
    for server in servers:
        await retry_until(lambda server=server: server.asked, timeout_s=20)
        server.kill()
    await bench.until(1)
    assert bench.finish("a") == "abort"
    assert "4 rollout replicas died" in bench.rollout.lost


async def test_a_last_replica_that_samples_other_tokens_does_not_end_sampling(bench_of):
    servers = [*(FakeServer([7, 8], held=1) for _ in range(3)), FakeServer([5, 6])]
    bench = bench_of(*servers)
    await retry_until(lambda: all(server.watched for server in servers), timeout_s=20)
    bench.rollout.submit(ask("a", stream=True, stop=["x"]))
    for server in servers[:3]:
        await retry_until(lambda server=server: server.asked, timeout_s=20)
        server.kill()
    await bench.until(1)
    assert (bench.ids("a"), bench.finish("a")) == ([7], "abort")
    assert (bench.deaths, bench.rollout.lost) == ([0, 1, 2], "")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_the_sampler_refuses_ends_alone(bench_of, stream):
    bench = bench_of(Picky([7]))
    odd = msgspec.structs.replace(ask("a", stream=stream), temperature=3.0)
    bench.rollout.submit(odd)
    bench.rollout.submit(ask("b", stream=stream))
    await bench.until(2)
    assert (bench.finish("a"), bench.ids("b")) == ("abort", [7])
    assert (bench.deaths, bench.rollout.lost) == ([], "")


async def test_a_picture_that_cannot_be_read_ends_its_own_request(bench_of):
    class Blind(FakeServer):
        async def _pieces(self, request):
            if request["images"] == [b"broken"]:
                raise UnreadablePicture("cannot be decoded")
            async for piece in super()._pieces(request):
                yield piece

    bench = bench_of(Blind([7]))
    bench.rollout.submit(ask("a", images=[b"broken"]))
    bench.rollout.submit(ask("b", images=[b"whole"]))
    await bench.until(2)
    assert (bench.finish("a"), bench.ids("b")) == ("abort", [7])
    assert bench.rollout.lost == ""


async def test_a_stream_that_another_replica_takes_over_keeps_its_pictures(bench_of):
    first, second = FakeServer([7, 8, 9], held=2), FakeServer([5, 6])
    bench = bench_of(first, second)
    bench.rollout.submit(ask("a", stream=True, images=[b"red"]))
    await retry_until(lambda: first.asked, timeout_s=20)
    first.kill()
    await bench.until(1)
    assert [server.asked[0]["images"] for server in (first, second)] == [[b"red"]] * 2


async def test_an_abort_reaches_the_replica(bench_of):
    server = FakeServer([7, 8], held=1)
    bench = bench_of(server)
    bench.rollout.submit(ask("a"))
    bench.rollout.submit(ask("b"))
    await retry_until(lambda: len(server.asked) == 2, timeout_s=20)
    bench.rollout.abort("a")
    bench.rollout.abort("nobody")
    await retry_until(lambda: server.stopped == ["a"], timeout_s=20)
