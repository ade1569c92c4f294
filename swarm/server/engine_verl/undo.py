"""A way back for a training worker, the policy's and the value model's alike."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from typing import Any

from verl.single_controller.base.decorator import Dispatch, register

from swarm.server.engine_verl.snapshots import Snapshot, finite


class Undoable:
    """Mixed into a worker; every method is called on all ranks at once."""

    _kept: Snapshot | None = None

    @property
    def _trained(self) -> Any:
        """The engine of verl whose weights move."""
        raise NotImplementedError

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def keep(self) -> None:
        """Copy what trains of this rank to host memory, until ``put_back`` or ``forget``."""
        self._kept = Snapshot(self._trained)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def put_back(self) -> None:
        """Undo every move since ``keep``; without one do nothing."""
        if self._kept is not None:
            self._kept.put_back(self._trained)
        self._kept = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def forget(self) -> None:
        """Free what ``keep`` copied."""
        self._kept = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finite(self) -> bool:
        """Return whether every trained weight of this rank is finite."""
        return finite(self._trained)
