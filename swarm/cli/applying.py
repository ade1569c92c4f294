"""What ``swarm config apply`` does: a change of the configuration, with the restart that it takes."""

from __future__ import annotations

from swarm.client.client import SwarmClient
from swarm.protocol.config import TrainConfig
from swarm.protocol.effects import heaviest, needs
from swarm.protocol.errors import StateError
from swarm.protocol.messages import ConfigChange
from swarm.protocol.states import ConfigEffect, EngineState


def apply_settings(
    client: SwarmClient, config: TrainConfig, *, restart: bool, new_run: bool
) -> list[ConfigChange]:
    """Change the server's configuration to ``config`` and return what changed; an engine that ran before runs again.

    Raises:
        StateError: A change takes a restart or a new run that is not allowed (each key is named; nothing was changed), or
            another client controls the server.
        EngineFailed: The changed configuration is set, and the engine did not boot with it.
    """
    changes = client.configure(config, dry_run=True)
    effect, status = heaviest(changes), client.status()
    runs = status.state is not EngineState.OFFLINE
    if effect is ConfigEffect.RUN and status.step > 0 and not new_run:
        raise StateError(
            f"The run is at step {status.step}; to change this takes more: {needs(changes)}.",
            hint="Add --new-run to give the run up, or leave these keys as they are.",
        )
    if effect is not ConfigEffect.STEP and runs and not (restart or new_run):
        raise StateError(
            f"The engine is {status.state.value}; to change this takes more: {needs(changes)}.",
            hint="Add --restart, or leave these keys as they are.",
        )
    if effect is ConfigEffect.STEP or not runs:
        return client.configure(config)
    client.stop()
    try:
        return client.configure(config)
    finally:
        client.start()
