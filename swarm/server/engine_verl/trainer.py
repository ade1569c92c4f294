"""One update through verl's worker group: minibatches of rows, forward and backward, optimizer steps, figures.

Blocks; the engine runs it in a thread of its own.
"""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError
from swarm.server.engine_verl.batches import Floats, RowArrays, arrays_of
from swarm.server.engine_verl.critic import Critic
from swarm.server.engine_verl.estimators import Estimate, estimated
from swarm.server.engine_verl.figures import figures_of
from swarm.server.engine_verl.importance import corrected, gap_of
from swarm.server.engine_verl.picture_reader import PictureReader
from swarm.server.ports import TrainBatch, TrainRow
from swarm.server.train.minibatches import mass, minibatches
from swarm.server.train.statistics import Move, Tally, UpdateStats, summary

CRITIC = "critic"
"""Folder of the value model inside a checkpoint's shards."""


@dataclass(frozen=True)
class Part:
    """A minibatch on its way: its rows as arrays, the reference's log-probabilities, and what scales its weights."""

    arrays: RowArrays
    reference_R_S: Floats | None  # noqa: N815
    scale: float
    truncated: int = 0
    """Tokens whose importance weight was cut."""
    gap: float | None = None
    """Largest difference to the sampler, where ``arrays`` no longer have what it said."""
    plain_R_S: Floats | None = None  # noqa: N815
    """Weights without importance, where those of ``arrays`` have it: a penalty is weighed by these."""


class Trainer:
    """Applies batches to the weights of a worker group, in place; ``group`` is a group of ``SwarmWorker``.

    Rows are padded to a multiple of ``multiple``. Their advantages are their own, unless an estimator of verl's or a critic
    gives others. ``reader`` is that of a model that reads pictures.
    """

    def __init__(
        self,
        group: Any,
        config: TrainConfig,
        *,
        multiple: int,
        has_reference: bool,
        estimate: Estimate | None = None,
        critic: Critic | None = None,
        reader: PictureReader | None = None,
    ) -> None:
        self._group = group
        self._config = config
        self._multiple = multiple
        self._has_reference = has_reference
        self._estimate = estimate
        self._critic = critic
        self._reader = reader

    def apply(self, batch: TrainBatch) -> UpdateStats:
        """Take one optimizer step per minibatch and epoch, or none at all.

        No trained tokens: nothing moves. A loss, gradient or weight that is not finite: weights and optimizer are put back
        as they were before the batch and ``rolled_back`` says what was not finite.

        Raises:
            ValueError: a row that cannot be trained on; nothing has moved then.
        """
        rows = sorted((row for row in batch.rows if row.spans), key=lambda row: row.key)
        if not rows:
            return UpdateStats()
        algorithm = self._config.algorithm
        kl_coef = algorithm.kl_coef if batch.kl_coef is None else batch.kl_coef
        rows = self._judged(self._with_pictures(rows))
        parts = self._parts(rows, kl_coef)
        if batch.overlapped:
            parts = [self._weighed(part) for part in parts]
        moves = self._moves(rows, parts, batch, kl_coef)
        if self._reader is not None:
            self._reader.forget()
        tokens = sum(part.arrays.tokens for part in parts)
        return summary(moves, tokens, has_kl=bool(kl_coef), weighted=batch.overlapped, cpu_s=0.0)

    def save(self, place: str, *, step: int) -> None:
        """Write weights and moments of all that trains below ``place``."""
        self._group.save_checkpoint(place, global_step=step)
        if self._critic is not None:
            self._critic.group.save_checkpoint(f"{place}/{CRITIC}", global_step=step)

    def load(self, place: str) -> None:
        """Take up what ``save`` wrote.

        Raises:
            ConfigError: it was written without the value model that this run trains.
        """
        if self._critic is not None and not Path(place, CRITIC).is_dir():
            raise ConfigError(
                f"The checkpoint {place!r} has no value model, and verl.adv_estimator is 'gae'.",
                hint="Resume with the estimator that it was trained with, or start anew from its model.",
            )
        self._group.load_checkpoint(place, None, False)
        if self._critic is not None:
            self._critic.group.load_checkpoint(f"{place}/{CRITIC}", None, False)

    def _with_pictures(self, rows: list[TrainRow]) -> list[TrainRow]:
        if self._reader is not None:
            return self._reader.rows(rows)
        if pictured := [row.key for row in rows if row.images]:
            msg = f"Row {pictured[0]!r} has pictures, and the model reads text only."
            raise ValueError(msg)
        return rows

    def _judged(self, rows: list[TrainRow]) -> list[TrainRow]:
        if self._critic is not None:
            return self._critic.judge(rows)
        return rows if self._estimate is None else estimated(rows, self._estimate)

    def _moves(
        self, rows: Sequence[TrainRow], parts: Sequence[Part], batch: TrainBatch, kl_coef: float
    ) -> list[Move]:
        """Every optimizer step, up to the first that is broken; then all of them are undone."""
        algorithm, critic = self._config.algorithm, self._critic
        groups = [self._group] if critic is None else [self._group, critic.group]
        for group in groups:
            group.keep()
        moves: list[Move] = []
        cut = minibatches(rows, algorithm.minibatches)
        for part, members in list(zip(parts, cut, strict=True)) * algorithm.epochs:
            move = self._move(part, batch, kl_coef)
            if critic is not None and not move.broken:
                move = replace(move, broken=critic.move(members))
            moves.append(move)
            if move.broken:
                for group in groups:
                    group.put_back()
                break
        for group in groups:
            group.forget()
        return moves

    def _parts(self, rows: Sequence[TrainRow], kl_coef: float) -> list[Part]:
        cut = minibatches(rows, self._config.algorithm.minibatches)
        readings = self._reader.readings if self._reader is not None else None
        arrays = [arrays_of(part, multiple=self._multiple, readings=readings) for part in cut]
        scales = [mass(rows) / mass(part) for part in cut]
        references = [self._reference(one) if kl_coef else None for one in arrays]
        return [Part(*one) for one in zip(arrays, references, scales, strict=True)]

    def _weighed(self, part: Part) -> Part:
        """The part as a clipped loss of now sees it, with importance weights for what older weights sampled."""
        from swarm.server.engine_verl.tensors import of_responses

        data = self._tensors(part.arrays, calculate_entropy=False, compute_loss=False)
        start = of_responses(_result(self._group.compute_log_prob(data)), "log_probs", data)
        cap = self._config.asynchronous.importance_cap
        arrays, truncated = corrected(part.arrays, start, cap)
        gap, plain = gap_of(part.arrays, start), part.arrays.weight_R_S
        return replace(part, arrays=arrays, truncated=truncated, gap=gap, plain_R_S=plain)

    def _tensors(self, arrays: RowArrays, **more: Any) -> Any:
        from swarm.server.engine_verl.tensors import tensordict_of

        return tensordict_of(arrays, reader=self._reader, **more)

    def _reference(self, arrays: RowArrays) -> Floats:
        """Log-probabilities of the model that training began with."""
        from swarm.server.engine_verl.tensors import of_responses

        data = self._tensors(arrays, calculate_entropy=False, compute_loss=False)
        if not self._has_reference:
            msg = "A KL penalty needs the reference model: set algorithm.kl_coef before the engine starts."
            raise ValueError(msg)
        output = _result(self._group.compute_ref_log_prob(data))
        return of_responses(output, "log_probs", data)

    def _move(self, part: Part, batch: TrainBatch, kl_coef: float) -> Move:
        """One optimizer step; verl leaves it out itself when the gradient is not finite."""
        from verl.utils import tensordict_utils as tu

        from swarm.server.engine_verl.tensors import of_responses

        data = self._tensors(
            part.arrays,
            scale=part.scale,
            reference_R_S=part.reference_R_S,
            plain_R_S=part.plain_R_S,
            calculate_entropy=True,
            compute_loss=True,
            kl_coef=kl_coef,
        )
        self._group.optimizer_zero_grad()
        output = _result(self._group.forward_backward(data))
        loss = float(tu.get(output, "metrics")["loss"])
        algorithm = self._config.algorithm
        figures = figures_of(
            part.arrays,
            of_responses(output, "log_probs", data),
            of_responses(output, "entropy", data) if "entropy" in output else None,
            part.reference_R_S,
            low=algorithm.clip_low,
            high=algorithm.clip_high,
        )
        tally = Tally(
            loss=loss,
            clipped=figures.clipped,
            entropy=figures.entropy,
            kl=figures.kl,
            gap=figures.gap if part.gap is None else part.gap,
            truncated=part.truncated,
            tokens=figures.tokens,
        )
        if not math.isfinite(loss):
            return Move(tally, math.nan, f"loss is {loss}")
        lr = self._config.optimizer.lr if batch.lr is None else batch.lr
        norm = float(_first(self._group.optimizer_step({"lr": lr})).get("grad_norm", math.nan))
        if not math.isfinite(norm):
            return Move(tally, norm, f"gradient norm is {norm}")
        broken = "" if all(self._group.finite()) else "weights are not finite after the move"
        return Move(tally, norm, broken)


def _first(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of the rank that has one."""
    return next((answer for answer in answers if answer), {})


def _result(output: Any) -> Any:
    """Wait for what a worker group does without blocking."""
    return output.get() if hasattr(output, "get") and not hasattr(output, "keys") else output
