"""Changes of the configuration: which ones a running server takes, from which step they hold, and when they are applied.

A change is in the journal before it is acknowledged, with the status step from which it holds; a resumed server therefore
trains each step under the configuration that it would have had.
"""

from __future__ import annotations

import secrets

from swarm.protocol.config import TrainConfig
from swarm.protocol.effects import changes_between, heaviest, needs
from swarm.protocol.errors import StateError
from swarm.protocol.messages import ConfigChange, ConfigRecord
from swarm.protocol.states import ConfigEffect, EngineState, FateReason
from swarm.server.journal.records import ConfigEntry
from swarm.server.model_files import resolve_model
from swarm.server.service.core import Core
from swarm.server.service.evals import EvalRounds, EvalSlots
from swarm.server.tracking.toolcalls import tool_parser
from swarm.triggers import Point, hit


class Configuring:
    """Takes changes, and applies those that wait at the step boundary."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: ConfigEntry | None = None
        """Accepted, and not in force before its step."""

    @property
    def accepted(self) -> TrainConfig:
        """The newest configuration that was accepted, in force or not yet; ``StateError`` when there is none."""
        return self._next.config if self._next is not None else self._core.config

    def configure(
        self, config: TrainConfig, *, who: str, dry_run: bool = False
    ) -> list[ConfigChange]:
        """Take ``config`` and return what differs from the newest accepted one; the same again changes nothing, in any state.

        While the engine runs, changes of ``STEP`` keys wait for the next step boundary. While it is OFFLINE, those and
        ``ENGINE`` keys hold at once and the run goes on (unless a committed batch waits for its update: then from the next
        step); a ``RUN`` key begins a new run at step 0. A ``dry_run`` changes nothing, in any state.

        Raises:
            ConfigError: The model's folder or the tool parser does not exist.
            StateError: The engine runs and a key needs a restart; the text names each. Nothing is changed then.
        """
        core = self._core
        old = self.accepted if core.configured is not None else None
        changes = changes_between(old, config)
        _check(config, {change.key for change in changes})
        if dry_run or not changes:
            return changes
        if core.lifecycle.state is not EngineState.OFFLINE:
            self._refuse_restarts(changes)
        if old is None or heaviest(changes) is ConfigEffect.RUN:
            self._begin_run(config, who, changes)
        else:
            self._change_run(config, who, changes)
        core.bell.ring()
        return changes

    def changes(self) -> list[ConfigRecord]:
        """Return the changes of the present run's configuration, in order of acceptance."""
        return [
            ConfigRecord.model_validate(
                {"step": e.step, "at": e.at, "who": e.who, "changes": e.changes}
            )
            for e in self._core.journal.config_changes()
        ]

    def apply_pending(self) -> None:
        """Put the change that waited for this step in force. Call between two steps, before the next one is opened."""
        entry = self._next
        if entry is not None and entry.step <= self._core.step:
            self._next = None
            self._enforce(entry.config)

    def restore(self) -> None:
        """Find the change that was accepted and not in force when the server ended. Call after the position was restored."""
        self._next = self._core.journal.config_after(self._core.step)

    # -- inside ---------------------------------------------------------------------------------------------

    def _refuse_restarts(self, changes: list[ConfigChange]) -> None:
        if heaviest(changes) is ConfigEffect.STEP:
            return
        raise StateError(
            f"The engine is {self._core.lifecycle.state.value}; these keys cannot change now: {needs(changes)}.",
            hint="Stop the engine, configure, start it again; or leave these keys as they are.",
            changes=[change.model_dump(mode="json") for change in changes],
        )

    def _begin_run(self, config: TrainConfig, who: str, changes: list[ConfigChange]) -> None:
        core = self._core
        incarnation = secrets.token_hex(6)
        core.journal.set_config(config, incarnation)
        hit(Point.CONFIG_RECORDED)
        core.configured, core.incarnation, self._next = config, incarnation, None
        core.step = core.version = core.ahead = 0
        core.owed = {}
        core.fingerprint, core.failure = None, None
        core.evals, core.eval_slots = EvalRounds(config.eval_gate), EvalSlots()
        core.chat_tokenizer, core.newest_checkpoint = None, ""
        core.alarms.reset()
        core.open_step()
        keys = [change.key for change in changes]
        core.events.try_add("configured", incarnation=incarnation, who=who, changed=keys)
        self._announce(0, who, changes)

    def _change_run(self, config: TrainConfig, who: str, changes: list[ConfigChange]) -> None:
        """Change the configuration of the run that goes on, from the open step on when that is possible."""
        core = self._core
        if any(change.key == "model.max_model_len" for change in changes):
            self._refuse_short_context(config.model.max_model_len)
        waits = self._open_step_is_bound()
        if not waits:
            self._unseat(config)
        step = core.step + waits
        at = core.clock.time()
        core.journal.record_config_change(config, step=step, at=at, who=who, changes=changes)
        hit(Point.CONFIG_RECORDED)
        told = [change.model_dump(mode="json") for change in changes]
        self._next = ConfigEntry(step=step, at=at, who=who, changes=told, config=config)
        if not waits and core.pool.step == core.step:
            self.apply_pending()
            pool, core.pool = core.pool, core.empty_pool()
            core.pool.take_over(pool)
        self._announce(step, who, changes)

    def _open_step_is_bound(self) -> bool:
        """Whether the open step goes on under the configuration that it began with.

        Not so when none is open (between two steps, or after the last), and when the engine is OFFLINE and no batch of it
        is committed: nothing moves then, and its pool can be seen with other eyes.
        """
        core = self._core
        if core.pool.step != core.step or core.step >= core.config.stop_at_step:
            return False
        if core.lifecycle.state is not EngineState.OFFLINE:
            return True
        return bool(core.journal.committed_after(core.step))

    def _refuse_short_context(self, longest: int | None) -> None:
        """What was recorded must still fit the model: a replay or the next update would need it."""
        core = self._core
        saved = core.journal.checkpoints()
        batches = core.journal.committed_after(saved[-1].step if saved else 0)
        lengths = [len(row.ids) for committed in batches for row in committed.batch.rows]
        lengths += [
            len(call.prompt_ids) + len(call.sampled_ids)
            for episode in core.pool.finish_order
            for call in episode.calls
        ]
        found = max(lengths, default=0)
        if longest is not None and found > longest:
            raise StateError(
                f"model.max_model_len {longest} is less than the {found} tokens of what the run has recorded and may need.",
                hint=f"Set it to {found} or more, or finish the open step and save a checkpoint first.",
            )

    def _unseat(self, config: TrainConfig) -> None:
        """Drop the finished members that a smaller group has no seat for."""
        core = self._core
        if core.pool.step != core.step:
            return
        seatless = [e for e in core.pool.finish_order if e.repeat_index >= config.batch.repeat]
        reason = FateReason.LEFTOVER
        core.journal.drop_episodes({e.episode_id: reason.value for e in seatless})
        for episode in seatless:
            episode.accepted = False
            episode.missed = f"batch.repeat was lowered to {config.batch.repeat}"
            core.drop(episode, reason)

    def _enforce(self, config: TrainConfig) -> None:
        self._core.configured = config
        self._core.evals.gate = config.eval_gate

    def _announce(self, step: int, who: str, changes: list[ConfigChange]) -> None:
        core = self._core
        core.events.try_add(
            "config_changed",
            incarnation=core.incarnation,
            from_step=step,
            who=who,
            changes=[change.model_dump(mode="json") for change in changes],
        )


def _check(config: TrainConfig, changed: set[str]) -> None:
    if "model.path" in changed:
        resolve_model(config.model.path)
    if "model.tool_parser" in changed and config.model.tool_parser is not None:
        tool_parser(config.model.tool_parser)
