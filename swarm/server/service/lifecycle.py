"""The engine's states and the only place that changes them.

Knows which transition is legal and tells a listener about each one; knows nothing of what a state means.
"""

from __future__ import annotations

from collections.abc import Callable

from swarm.protocol.errors import StateError
from swarm.protocol.states import EngineState

_S = EngineState
LEGAL: dict[EngineState, frozenset[EngineState]] = {
    _S.OFFLINE: frozenset({_S.BOOTING}),
    # A recovered engine takes up the work at which the old one died.
    _S.BOOTING: frozenset(
        {
            _S.OFFLINE,
            _S.ROLLING,
            _S.ROLLING_POST,
            _S.WEIGHT_SYNCING,
            _S.WEIGHT_EXPORTING,
            _S.TRAINED,
        }
    ),
    _S.ROLLING: frozenset({_S.OFFLINE, _S.BOOTING, _S.ROLLING_POST}),
    _S.ROLLING_POST: frozenset({_S.OFFLINE, _S.BOOTING, _S.WEIGHT_SYNCING}),
    # Exporting is left out by a step that saves nothing.
    _S.WEIGHT_SYNCING: frozenset(
        {_S.OFFLINE, _S.BOOTING, _S.WEIGHT_EXPORTING, _S.ROLLING, _S.TRAINED}
    ),
    _S.WEIGHT_EXPORTING: frozenset({_S.OFFLINE, _S.BOOTING, _S.ROLLING, _S.TRAINED}),
    # stop_at_step was raised.
    _S.TRAINED: frozenset({_S.OFFLINE, _S.BOOTING, _S.ROLLING}),
}
"""From each state, the states that may follow. Staying is not a transition."""

HOLDS_CALLS = frozenset({_S.BOOTING, _S.WEIGHT_SYNCING, _S.WEIGHT_EXPORTING})
"""States in which a call waits for the engine."""

SERVES_EVALS = frozenset(
    {_S.ROLLING, _S.ROLLING_POST, _S.WEIGHT_SYNCING, _S.WEIGHT_EXPORTING, _S.TRAINED}
)
"""States in which an eval episode is granted, and in which an eval gate's deadline runs."""

Listener = Callable[[EngineState, EngineState, str], None]


class Lifecycle:
    """The current state; ``to`` moves it."""

    def __init__(self, listener: Listener) -> None:
        self.state: EngineState = EngineState.OFFLINE
        self._listener = listener

    @property
    def holds_calls(self) -> bool:
        """Whether a call must wait now."""
        return self.state in HOLDS_CALLS

    def to(self, target: EngineState, why: str = "") -> None:
        """Move to ``target`` and tell the listener ``(old, new, why)``.

        Raises:
            StateError: The transition is not legal from the current state; nothing changed.
        """
        old = self.state
        if target not in LEGAL[old]:
            legal = ", ".join(sorted(s.value for s in LEGAL[old]))
            raise StateError(
                f"The engine cannot go from {old.value} to {target.value}.",
                hint=f"From {old.value} it can go to: {legal}.",
            )
        self.state = target
        self._listener(old, target, why)

    def require(self, *allowed: EngineState, action: str) -> None:
        """Check that an action is possible in the current state.

        Raises:
            StateError: It is not.
        """
        if self.state not in allowed:
            names = ", ".join(s.value for s in allowed)
            raise StateError(
                f"{action} is not possible while the engine is {self.state.value}.",
                hint=f"It is possible in: {names}.",
            )
