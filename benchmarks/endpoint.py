"""What the endpoint costs: our chat route beside a bare Starlette route that returns the same bytes, and beside the litellm proxy.

The engine answers at once, so what is left is routing, auth, parsing, rendering, capture and journal. Conversations have three
turns, and four episodes share a task, as groups do. Also: 2,000 open episodes and waves of 200 streams with the server's memory,
and what one call costs the light client and the openai client.

``endpoint.py [--quick] [--litellm EXECUTABLE]``: without the path of a ``litellm`` (``pip install 'litellm[proxy]'`` in a venv of
its own) that comparison is left out. On a busy machine read the CPU figures and the ratios; wall times are of that moment.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import urllib3
from common import write_result
from endpoint_load import Load, drive, request_bytes, shared
from endpoint_servers import ANSWER

from swarm.client import SwarmClient

CHAT, EPISODES = "/v1/chat/completions", "/swarm/episodes"
SERVERS = Path(__file__).with_name("endpoint_servers.py")
TURNS, SHARED_BY = 3, 4
CONNECTIONS = 32
START_S = 90.0
SYSTEM = "You are a careful calculator. Think, then answer with one number and nothing else."
PROXY_KEY = f"sk-{secrets.token_hex(16)}"
numbers = itertools.count(1)


@dataclass
class Server:
    """A process that listens on ``port``."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far, to the nanosecond."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def process(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen]:
    """A process that is terminated at the end."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def until(ready: Any, running: subprocess.Popen, log: Path) -> None:
    """Wait until ``ready()``; RuntimeError with the log when the process ends or takes too long."""
    end = time.monotonic() + START_S
    while not ready():
        if running.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{running.args} did not start:\n{log.read_text()[-4000:]}")
        time.sleep(0.05)


@contextmanager
def swarm_server(folder: Path) -> Iterator[tuple[Server, str]]:
    """Our server, rolling, and its client token."""
    folder.mkdir()
    log, ready = folder.with_suffix(".log"), folder / "ready.json"
    command = [sys.executable, str(SERVERS), "swarm", str(folder)]
    with process(command, log, XDG_STATE_HOME=str(folder)) as running:
        until(ready.exists, running, log)
        told = json.loads(ready.read_text())
        token = json.loads((folder / "tokens.json").read_text())["client"]
        status = f"{told['url']}/swarm/status"
        headers = {"Authorization": f"Bearer {token}"}
        until(lambda: b'"ROLLING"' in _get(status, headers), running, log)
        yield Server(running.pid, told["port"]), token


@contextmanager
def bare_server(folder: Path, name: str, body: bytes, media_type: str) -> Iterator[Server]:
    """The bare route."""
    port_file, bytes_file, log = (folder / f"{name}.{end}" for end in ("port", "bytes", "log"))
    bytes_file.write_bytes(body)
    command = [sys.executable, str(SERVERS), "bare", str(port_file), str(bytes_file), media_type]
    with process(command, log) as running:
        until(lambda: port_file.exists() and port_file.read_text(), running, log)
        yield Server(running.pid, int(port_file.read_text()))


@contextmanager
def litellm_server(folder: Path, executable: str, upstream: int) -> Iterator[Server]:
    """The litellm proxy in front of ``upstream``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = {
        "model": "openai/toy",
        "api_base": f"http://127.0.0.1:{upstream}/v1",
        "api_key": "none",
    }
    config, log = folder / "litellm.json", folder / "litellm.log"
    config.write_text(
        json.dumps({"model_list": [{"model_name": "swarm", "litellm_params": model}]})
    )
    command = [executable, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    offline |= {"LITELLM_MASTER_KEY": PROXY_KEY}
    with process(command, log, **offline) as running:
        alive = f"http://127.0.0.1:{port}/health/liveliness"
        until(lambda: _get(alive, {}), running, log)
        yield Server(running.pid, port)


def _get(url: str, headers: dict[str, str]) -> bytes:
    try:
        return urllib3.request("GET", url, headers=headers, retries=False, timeout=5).data
    except urllib3.exceptions.HTTPError:
        return b""


def body(task: int, turn: int, *, stream: bool = False) -> bytes:
    """A call of the given turn (from 0) of a task's conversation."""
    asked = f"Compute {task} + {task % 97} and tell me the answer."
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
    for n in range(turn):
        messages.append({"role": "assistant", "content": ANSWER})
        messages.append({"role": "user", "content": f"Now add {n + 3} to it."})
    call = {"model": "swarm", "messages": messages, "temperature": 1.0, "max_tokens": 32}
    return orjson.dumps(call | ({"stream": True} if stream else {}))


def grant_requests(token: str, count: int, kind: str = "train") -> list[bytes]:
    """Requests for ``count`` episodes of new tasks."""
    first = next(numbers) * 1_000_000
    wanted = {"client_id": "bench", "task_set": "bench", "kind": kind}
    bodies = (wanted | {"task_id": f"t{first + i // SHARED_BY}"} for i in range(count))
    return [request_bytes(EPISODES, token, orjson.dumps(one)) for one in bodies]


async def granted(server: Server, token: str, count: int, kind: str = "train") -> list[Any]:
    """Take ``count`` episodes."""
    load = await drive(server.port, 1, shared(grant_requests(token, count, kind)))
    return [orjson.loads(body) for body in load.bodies]


def finishes(token: str, grants: list[Any]) -> list[bytes]:
    """Requests that finish the episodes."""
    paths = (f"{EPISODES}/{grant['episode_id']}/finish" for grant in grants)
    return [request_bytes(path, token, b'{"reward": 1.0}') for path in paths]


def chats(grants: list[Any], *, stream: bool = False, key: str = "") -> list[bytes]:
    """The calls of all turns: first turns first, so that no conversation waits for itself."""
    first = next(numbers) * 1_000_000
    return [
        request_bytes(
            CHAT, key or grant["api_key"], body(first + i // SHARED_BY, turn, stream=stream)
        )
        for turn in range(TURNS)
        for i, grant in enumerate(grants)
    ]


async def measured(server: Server, requests: list[bytes], connections: int) -> dict[str, Any]:
    """One load on one server: rate, quantiles, CPU of the server a request."""
    before = server.cpu_s()
    load: Load = await drive(server.port, connections, shared(requests))
    used = server.cpu_s() - before
    return load.figures() | {"server_cpu_us": round(used / len(requests) * 1e6, 1)}


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the rounds."""
    return {name: round(statistics.median(r[name] for r in rounds), 3) for name in rounds[0]}


def compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, float]:
    """Median over the rounds of ours over theirs: in requests/s, and in requests a CPU second of the server."""
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "rate": round(
            statistics.median(a["requests_per_s"] / b["requests_per_s"] for a, b in pairs), 3
        ),
        "rate_per_cpu_second": round(
            statistics.median(b["server_cpu_us"] / a["server_cpu_us"] for a, b in pairs), 3
        ),
    }


class Comparison:
    """The same calls to each target, in turns."""

    def __init__(self, targets: dict[str, Server], token: str) -> None:
        self._targets, self._token = targets, token
        self.rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in targets}

    async def round(self, episodes: int, connections: int, *, stream: bool = False) -> None:
        """One round: episodes of their own, all their calls, all their finishes."""
        ours = self._targets["swarm"]
        grants = await granted(ours, self._token, episodes)
        for name, server in self._targets.items():
            key = PROXY_KEY if name == "litellm" else ""
            requests = chats(grants, stream=stream, key=key)
            if name == "litellm":
                requests = requests[: max(TURNS * 8, len(requests) // 4)]
            self.rounds[name].append(await measured(server, requests, connections))
        await drive(ours.port, 1, shared(finishes(self._token, grants)))

    def figures(self) -> dict[str, Any]:
        """Medians, and our rate over each other's."""
        told: dict[str, Any] = {name: middle(rounds) for name, rounds in self.rounds.items()}
        others = [name for name in self._targets if name != "swarm"]
        told["ours_over"] = {o: compared(self.rounds["swarm"], self.rounds[o]) for o in others}
        bare = told["bare"]
        told["added_ms"] = {q: round(told["swarm"][q] - bare[q], 3) for q in ("p50_ms", "p99_ms")}
        return told


async def compare(
    targets: dict[str, Server], token: str, times: int, episodes: int, **how: Any
) -> Any:
    """``times`` rounds after one that warms up."""
    await Comparison(targets, token).round(min(episodes, 16), **how)
    comparison = Comparison(targets, token)
    for _ in range(times):
        await comparison.round(episodes, **how)
    return comparison.figures()


async def life_cycle(ours: Server, token: str, count: int) -> dict[str, Any]:
    """Grants and finishes, each beside one of the other kind's connections."""
    requests = grant_requests(token, count)
    grant = await measured(ours, requests, 8)
    grants = await granted(ours, token, count)
    finish = await measured(ours, finishes(token, grants), 8)
    return {"grant": grant, "finish_without_calls": finish}


async def memory(
    ours: Server, token: str, open_count: int, streams: int, waves: int
) -> dict[str, Any]:
    """Bytes an idle episode, and the server's memory over waves of streams, each on episodes that end with it."""
    await granted(ours, token, 64, "eval")
    before = ours.memory()
    episodes = await granted(ours, token, open_count, "eval")
    idle = (ours.memory() - before) / open_count
    resident: list[float] = []
    for wave in range(waves):
        now, episodes = episodes[:streams], episodes[streams:]
        await drive(ours.port, streams, shared(chats(now, stream=True)))
        await drive(ours.port, 8, shared(finishes(token, now)))
        episodes += await granted(ours, token, streams, "eval")
        resident.append(round(ours.memory() / 2**20, 1))
        print(f"wave {wave}: {resident[-1]} MiB", file=sys.stderr)
    half = len(resident) // 2
    growth = statistics.mean(resident[half:]) - statistics.mean(resident[1:half] or resident[:1])
    return {
        "open_episodes": open_count,
        "streams_at_once": streams,
        "bytes_per_idle_episode": round(idle),
        "resident_mib_by_wave": resident,
        "growth_mib_second_half": round(growth, 2),
    }


def client_cost(ours: Server, token: str, calls: int) -> dict[str, Any]:
    """CPU milliseconds of the calling process for one call, of the light client and of the openai client."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Compute 1 + 2."},
    ]
    found: dict[str, Any] = {}
    said = {"temperature": 1.0, "max_tokens": 32}
    client = SwarmClient(f"http://127.0.0.1:{ours.port}", token)
    with client, client.episode("cost", task_set="bench") as episode:
        create = episode.openai().chat.completions.create
        ways: dict[str, Callable[[], Any]] = {
            "light_client": lambda: episode.chat(messages, **said),
            "openai_client": lambda: create(model="swarm", messages=messages, **said),
        }
        for name, call in ways.items():
            for _ in range(10):
                call()
            began = time.process_time()
            for _ in range(calls):
                call()
            found[f"{name}_ms"] = round((time.process_time() - began) / calls * 1e3, 3)
        episode.finish(1.0)
    found["openai_over_light"] = round(found["openai_client_ms"] / found["light_client_ms"], 2)
    return found


def unchunked(body: bytes) -> bytes:
    """The body without the framing of its chunks."""
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        whole, body = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole


async def same_bytes(ours: Server, token: str) -> tuple[bytes, bytes]:
    """An answer of ours, whole and streamed, for the bare routes to return."""
    grants = await granted(ours, token, 2)
    whole = await drive(ours.port, 1, shared(chats(grants[:1])))
    streamed = await drive(ours.port, 1, shared(chats(grants[1:], stream=True)))
    return whole.bodies[-1], unchunked(streamed.bodies[-1])


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything, on servers of its own."""
    times, episodes = (2, 64) if options.quick else (5, 256)
    with ExitStack() as stack:
        ours, token = stack.enter_context(swarm_server(folder / "swarm"))
        whole, events = asyncio.run(same_bytes(ours, token))
        bare = stack.enter_context(bare_server(folder, "whole", whole, "application/json"))
        bare_stream = stack.enter_context(
            bare_server(folder, "events", events, "text/event-stream")
        )
        targets = {"swarm": ours, "bare": bare}
        figures: dict[str, Any] = {"answer_bytes": len(whole), "turns": TURNS}
        one = asyncio.run(compare(targets, token, times, episodes // 2, connections=1))
        if options.litellm:
            proxy = litellm_server(folder, options.litellm, bare.port)
            targets["litellm"] = stack.enter_context(proxy)
        figures["whole"] = asyncio.run(
            compare(targets, token, times, episodes, connections=CONNECTIONS)
        )
        figures["whole_one_connection"] = one
        figures["streamed"] = asyncio.run(
            compare(
                {"swarm": ours, "bare": bare_stream}, token, times, episodes // 2, connections=CONNECTIONS, stream=True
            )
        )  # fmt: skip
        figures["life_cycle"] = asyncio.run(life_cycle(ours, token, episodes * 2))
        figures["client"] = client_cost(ours, token, 50 if options.quick else 300)
    with swarm_server(folder / "memory") as (fresh, token):
        waves = (4, 400, 50) if options.quick else (20, 2000, 200)
        figures["memory"] = asyncio.run(memory(fresh, token, waves[1], waves[2], waves[0]))
    return figures


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run; nothing is written")
    parser.add_argument("--litellm", help="path of a litellm with the proxy extra")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options)
    if options.quick:
        print(json.dumps(figures, indent=1))
    else:
        write_result("endpoint", "benchmarks/endpoint.py --litellm litellm", figures)


if __name__ == "__main__":
    main()
