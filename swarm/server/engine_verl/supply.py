"""Keeps the rollout supplied: the trainer's weights for every replica, and a new replica for a dead one.

Runs in the engine's working thread, after or before an update and never beside one; sampling goes on meanwhile, on the replicas
that live. Bounded: what cannot be mended ends sampling (``Rollout.lost``), and the front then boots the whole engine anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from swarm.protocol.errors import EngineFailed
from swarm.server.engine_verl.rollout import Rollout

logger = logging.getLogger(__name__)

TRIES = 3
"""Launches of one replica before it is given up."""
DEATHS = 5
"""Deaths mended between two updates; the next one is final: something kills what serves."""
STUCK_S = 60.0
"""A replica that dies while it is given weights may leave the trainer waiting for it for ever."""


class Supply:
    """``replicas`` is a ``Replicas``, or what does the same in tests. ``clock`` returns seconds."""

    def __init__(
        self, replicas: Any, rollout: Rollout, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._replicas = replicas
        self._rollout = rollout
        self._clock = clock
        self._handing_over = False
        self._stuck_since: float | None = None
        self._deaths = 0
        self.served: dict[int, list[str]] = {}
        """Replica -> checksums of what its workers serve, as of the last hand-over."""

    def serve(self, version: int) -> None:
        """Give the trainer's weights to every replica; dead ones are replaced first, and after one more death all is done again.

        Raises:
            EngineFailed: a dead one could not be replaced: verl would wait for it.
            Exception: Ray's or verl's, when it fails for another reason than a death, or a second time.
        """
        for last in (False, True):
            self.mend(version, as_before=False)
            if self._rollout.lost:
                raise EngineFailed(self._rollout.lost, hint="The engine is booted anew.")
            try:
                self._hand_over(version)
                break
            except Exception as error:
                if last or not self._rollout.await_death(error):
                    raise
                logger.warning("A rollout replica died while it was given weights; trying again.")
        self._deaths = 0

    def mend(self, version: int, *, as_before: bool = True) -> list[int]:
        """Replace every dead replica; returns their numbers. ``as_before``: the trainer's weights are those that are served.

        What cannot be mended ends as ``Rollout.lost``.
        """
        mended: list[int] = []
        for rank in sorted(self._rollout.dead):
            self._deaths += 1
            why = (
                "replicas die again and again"
                if self._deaths > DEATHS
                else self._replace(rank, version, as_before=as_before)
            )
            if why:
                self._rollout.give_up(f"rollout replica {rank} died and was not replaced: {why}")
                return mended
            mended.append(rank)
        return mended

    def sleep(self) -> None:
        """Give the memory of every replica to the trainer, until ``serve``."""
        self._replicas.sleep()

    def check_stuck(self) -> None:
        """Notice a hand-over that waits for a dead replica; called from another thread, now and then.

        Raises:
            EngineFailed: it has waited for ``STUCK_S``.
        """
        if not (self._handing_over and self._rollout.dead):
            self._stuck_since = None
            return
        now = self._clock()
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > STUCK_S:
            raise EngineFailed(
                f"A rollout replica died while it was given weights: {self._rollout.dead}.",
                hint="The engine is booted anew.",
            )

    def _hand_over(self, version: int) -> None:
        self._handing_over = True
        try:
            self._replicas.serve(version)
        finally:
            self._handing_over = False
        self.served = self._replicas.served()

    def _replace(self, rank: int, version: int, *, as_before: bool) -> str:
        """Replace one; returns why not."""
        why = ""
        for tries in range(1, TRIES + 1):
            began = self._clock()
            try:
                server = self._replicas.replace(rank, version)
                found = self._replicas.served([rank])[rank]
            except Exception as error:  # noqa: BLE001 - whatever Ray, verl or vLLM could not do
                why = f"{type(error).__name__}: {error}"
                logger.warning("Rollout replica %d, launch %d failed: %s", rank, tries, why)
                continue
            if as_before and found != self.served.get(rank):
                return f"it serves {found} instead of {self.served.get(rank)}"
            self._rollout.revive(rank, server)
            seconds = self._clock() - began
            logger.warning("Rollout replica %d was replaced in %.0f s.", rank, seconds)
            return ""
        return why
