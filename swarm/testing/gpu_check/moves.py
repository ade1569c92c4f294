"""What a check does with an engine: few boots, for on a GPU a boot is most of the time. Findings say what was seen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from swarm.server.engine_verl.nonces import NONCE
from swarm.server.ports import TrainBatch, TrainRow
from swarm.testing import engine_kit
from swarm.testing.engine_kit import Bench, Finding

SAMPLING: tuple[engine_kit.Check, ...] = (
    engine_kit.same_key_same_tokens,
    engine_kit.a_logprob_each,
    engine_kit.limits_hold,
    engine_kit.streams_add_up,
    engine_kit.constraints_hold,
    engine_kit.aborts_end,
)
LR = 1e-3
BITS = {True: "the same bits", False: "OTHER BITS: set checkpoint.every_steps to 1"}


class Play:
    """One engine, booted and moved. Each step returns what was seen, or raises."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._checkpoint = str(bench.folder / "one")
        self._rows: list[TrainRow] = []
        """Of the second update, for its replay."""
        self._seen: tuple[str, str] = ("", "")
        """Fingerprints after the first and the second update."""

    async def boots(self) -> str:
        """Boot the base model."""
        info = await self._bench.boot()
        assert info.fingerprint, f"{info!r}"
        return f"{info.device}, {info.parameters} parameters"

    async def samples(self) -> str:
        """Go through the kit's checks of sampling; the first that fails is told."""
        for check in SAMPLING:
            try:
                await check(self._bench)
            except Exception as error:
                raise AssertionError(f"{check.__name__}: {error}") from error
        return f"{len(SAMPLING)} checks of sampling hold"

    async def updates(self) -> str:
        """Two updates that move the weights, with a checkpoint between them."""
        engine = self._bench.engine
        first = await engine.train(TrainBatch(1, 1, await self._bench.rows(), lr=LR))
        saved = await engine.save(self._checkpoint)
        self._rows = await self._bench.rows()
        second = await engine.train(TrainBatch(2, 2, self._rows, lr=LR))
        for done in (first, second):
            assert done.moved, f"{done!r}"
            assert not done.rolled_back, f"{done!r}"
            assert done.logprob_gap_max <= self._bench.gap, f"the gap is {done.logprob_gap_max}"
        assert saved["fingerprint"] == first.fingerprint != second.fingerprint, f"{saved!r}"
        self._seen = (first.fingerprint, second.fingerprint)
        return f"gap {first.logprob_gap_max:.2g}, then {second.logprob_gap_max:.2g}"

    async def replica_dies(self) -> str:
        """Kill every rollout server of this process's nonce; the next call is answered by another."""
        killed = _rollout_servers(os.environ.get(NONCE, ""))
        assert killed, "no rollout server was found"
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        answer = await self._bench.engine.generate(self._bench.ask())
        assert answer.token_ids, f"{answer!r}"
        assert answer.finish != "abort", f"{answer!r}"
        return f"{len(killed)} killed, answered again after {time.monotonic() - began:.0f} s"

    async def comes_back(self) -> str:
        """Another engine has the checkpoint's weights. Whether a replay has the same bits is told, and no failure."""
        before, after = self._seen
        await self._bench.engine.close()
        info = await self._bench.boot(self._checkpoint)
        assert (info.fingerprint, info.policy_version) == (before, 1), f"{info!r}"
        replayed = await self._bench.engine.train(TrainBatch(2, 2, self._rows, lr=LR))
        return f"restored; the replay has {BITS[replayed.fingerprint == after]}"


async def once(bench: Bench) -> list[Finding]:
    """Boot, sample, update twice, close."""
    play = Play(bench)
    return await _played(bench, (play.boots, play.samples, play.updates))


async def again(bench: Bench) -> list[Finding]:
    """As ``once``; then a second engine takes up the checkpoint between the updates, and replays the second one."""
    play = Play(bench)
    return await _played(bench, (play.boots, play.samples, play.updates, play.comes_back))


async def replica(bench: Bench) -> list[Finding]:
    """Boot, kill the rollout's servers, sample and update with those that took their place."""
    play = Play(bench)
    return await _played(bench, (play.boots, play.replica_dies, play.samples, play.updates))


def _rollout_servers(nonce: str) -> list[int]:
    """Process ids of the actors that sample, of one engine on this machine."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue  # it has gone, or is another user's
        if command.startswith(
            b"ray::SwarmServer"
        ) and f"{NONCE}={nonce}".encode() in variables.split(b"\0"):
            found.append(int(path.name))
    return found


async def _played(bench: Bench, steps: tuple[Callable[[], Awaitable[str]], ...]) -> list[Finding]:
    """One finding a step. What follows a step that failed is not tried, and is not among them."""
    findings: list[Finding] = []
    for step in steps:
        name, began = str(getattr(step, "__name__", step)), time.monotonic()
        try:
            seen = await step()
        except Exception as error:  # noqa: BLE001 - the check tells, whatever is broken
            findings.append(Finding(name, ok=False, detail=f"{type(error).__name__}: {error}"))
            break
        seconds = time.monotonic() - began
        findings.append(Finding(name, ok=True, detail=f"{seen} ({seconds:.0f} s)"))
    await bench.engine.close()
    return findings
