"""``python -m a3r.hosts.debug_episode``: does this host train? A server with the tiny model, one step, on the CPU.

The last line of stdout is one JSON object: ``ok``, ``steps``, ``seconds``, ``error``. Uses no GPU: those are in use by others.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from swarm.client import SwarmClient, run_episodes
from swarm.protocol.errors import SwarmError
from swarm.protocol.states import EngineState

Json = dict[str, Any]

START_S = 90.0
LOOK_S = 0.1
ROLES = ("admin", "client", "eval", "signing")
CONFIG: Json = {
    "engine": "torch",
    "model": {"path": "builtin:tiny-calc"},
    "batch": {"tasks": 1, "repeat": 2},
    "sampling": {"max_response_tokens": 16},
    "stop_at_step": 1,
}


def main() -> int:
    """Print what came of it; 0 when the host trained."""
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="a3r-debug-") as scratch:
            steps = _train(Path(scratch))
        told: Json = {"ok": True, "steps": steps}
    except (OSError, SwarmError, TimeoutError, RuntimeError) as error:
        told = {"ok": False, "error": f"{error}"}
    told["seconds"] = round(time.monotonic() - begun, 1)
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if told["ok"] else 1


def _train(folder: Path) -> int:
    tokens = {role: secrets.token_urlsafe(32) for role in ROLES}
    state = folder / "server"
    state.mkdir(mode=0o700)
    _private(state / "tokens.json", json.dumps(tokens))
    (folder / "train.json").write_text(json.dumps(CONFIG), "utf-8")
    server = _serve(folder, state)
    try:
        url = _url(server, folder)
        with SwarmClient(url, tokens["admin"], "debug") as client:
            _wait_rolling(client, server, folder)
            run_episodes(["one"], _play, client=client, repeat=2, parallel=2)
            return client.status().step
    finally:
        _end(server)


def _play(episode: Any, _task: Any) -> float:
    episode.chat([{"role": "user", "content": "Compute 1+2."}])
    return float(episode.grant.repeat_index)


def _serve(folder: Path, state: Path) -> subprocess.Popen[bytes]:
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "swarm.cli", "serve"),
                *("--host", "127.0.0.1", "--port", "0", "--start"),
                *("--state-dir", str(state), "--config", str(folder / "train.json")),
                *("--ready-file", str(folder / "ready.json")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "XDG_STATE_HOME": str(folder)},
            start_new_session=True,
        )


def _url(server: subprocess.Popen[bytes], folder: Path) -> str:
    ready, ends = folder / "ready.json", time.monotonic() + START_S
    while not ready.exists():
        _check(server, folder, ends, "does not listen")
        time.sleep(LOOK_S)
    return str(json.loads(ready.read_text("utf-8"))["url"])


def _wait_rolling(client: SwarmClient, server: subprocess.Popen[bytes], folder: Path) -> None:
    ends = time.monotonic() + START_S
    while client.status().state is not EngineState.ROLLING:
        _check(server, folder, ends, "does not begin to sample")
        time.sleep(LOOK_S)


def _check(server: subprocess.Popen[bytes], folder: Path, ends: float, what: str) -> None:
    if server.poll() is None and time.monotonic() < ends:
        return
    said = (folder / "server.log").read_bytes()[-600:].decode("utf-8", "replace").strip()
    raise RuntimeError(f"the server {what}: {said}")


def _end(server: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience_s)
            return


def _private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
