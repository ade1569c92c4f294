"""Rows of episodes' trees as rectangular arrays: ids, masks, advantages, weights, as verl's workers take them. numpy only.

A row becomes one sequence whose first token is the "prompt" and all others the "response": what trains is told by a mask, not
by a border, because in a merged row answers and tool results alternate. Each trained token keeps the advantage of its episode
and a weight that the front has already normalised, so no reduction of verl's can count an episode twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from swarm.server.engine_verl.pictures import Reading
from swarm.server.ports import Span, TrainRow

Floats = npt.NDArray[np.float32]
Readings = Callable[[TrainRow], list[Reading]]
"""What the pictures of a row are to the model; none for a row without."""


@dataclass(frozen=True)
class RowArrays:
    """R rows of at most T tokens; the second axis of all but the ids is the response, T - 1 long: entry j is token j + 1.

    ``keys`` has "" for rows that only pad.
    """

    keys: list[str]
    groups: list[str]
    ids_R_T: npt.NDArray[np.int64]  # noqa: N815
    length_R: npt.NDArray[np.int64]  # noqa: N815
    trained_R_S: npt.NDArray[np.bool_]  # noqa: N815
    old_R_S: Floats  # noqa: N815
    advantage_R_S: Floats  # noqa: N815
    weight_R_S: Floats  # noqa: N815
    temperature_R: Floats  # noqa: N815
    readings_R: list[list[Reading]] = field(default_factory=list[list[Reading]])  # noqa: N815
    """Pictures of each row, whose tokens the ids have; empty when no row has any."""

    @property
    def tokens(self) -> int:
        """Trained tokens."""
        return int(self.trained_R_S.sum())


def arrays_of(
    rows: Sequence[TrainRow], *, multiple: int = 1, readings: Readings | None = None
) -> RowArrays:
    """Return the rows, in order of key, with rows that train nothing added until their number is a multiple of ``multiple``.

    Rows with pictures hold the tokens of these already (``pictures.expanded``); ``readings`` tells what a row's pictures are.

    A row whose spans were sampled at several temperatures becomes one row a temperature: the loss of a token depends on what
    stands before it and not on which other tokens of its row train.

    Raises:
        ValueError: no rows, values a token that do not match the spans, a span outside the row, or tokens that were not
            sampled plainly (their distribution cannot be rebuilt here).
    """
    if not rows:
        raise ValueError("There are no rows to train on.")
    for row in rows:
        _check(row)
    parts = [part for row in sorted(rows, key=lambda r: r.key) for part in _by_temperature(row)]
    filled = [*parts, *_padding(parts, multiple)]
    count, longest = len(filled), max(len(row.ids) for row in filled)
    shape = (count, longest - 1)
    out = RowArrays(
        keys=[row.key for row in filled],
        groups=[group_of(row.key) for row in filled],
        ids_R_T=np.zeros((count, longest), np.int64),
        length_R=np.array([len(row.ids) for row in filled], np.int64),
        trained_R_S=np.zeros(shape, np.bool_),
        old_R_S=np.zeros(shape, np.float32),
        advantage_R_S=np.zeros(shape, np.float32),
        weight_R_S=np.zeros(shape, np.float32),
        temperature_R=np.array([_temperature(row) for row in filled], np.float32),
    )
    for index, row in enumerate(filled):
        _fill(out, index, row)
    if readings is not None and any(row.images for row in filled):
        out.readings_R.extend(readings(row) for row in filled)
    return out


def group_of(key: str) -> str:
    """Group id of a row's key ``group_id/repeat/row``."""
    return key.rsplit("/", 2)[0]


def _fill(out: RowArrays, index: int, row: TrainRow) -> None:
    out.ids_R_T[index, : len(row.ids)] = row.ids
    at = _positions(row)
    out.trained_R_S[index, at] = True
    out.old_R_S[index, at] = row.logprobs
    out.advantage_R_S[index, at] = row.advantages or row.advantage
    own = np.asarray(row.weights, np.float64) if row.weights else np.ones(len(at))
    out.weight_R_S[index, at] = own * row.weight


def _positions(row: TrainRow) -> list[int]:
    """Response index of each trained token."""
    return [at - 1 for span in row.spans for at in range(span.start, span.end)]


def _temperature(row: TrainRow) -> float:
    return (row.spans[0].temperature or 1.0) if row.spans else 1.0


def _by_temperature(row: TrainRow) -> list[TrainRow]:
    """One row a temperature, in the order in which temperatures first occur; keys stay those of the row."""
    found = list(dict.fromkeys(span.temperature or 1.0 for span in row.spans))
    return [row] if len(found) < 2 else [_only(row, temperature) for temperature in found]


def _only(row: TrainRow, temperature: float) -> TrainRow:
    wanted = [(s.temperature or 1.0) == temperature for s in row.spans]
    token = [w for s, w in zip(row.spans, wanted, strict=True) for _ in range(s.end - s.start)]
    return TrainRow(
        key=row.key,
        episode_id=row.episode_id,
        ids=row.ids,
        spans=list(itertools.compress(row.spans, wanted)),
        logprobs=list(itertools.compress(row.logprobs, token)),
        advantage=row.advantage,
        weight=row.weight,
        advantages=list(itertools.compress(row.advantages, token)),
        weights=list(itertools.compress(row.weights, token)),
        images=row.images,
    )


def _padding(rows: list[TrainRow], multiple: int) -> list[TrainRow]:
    short = min(rows, key=lambda row: len(row.ids))
    empty = TrainRow("", "", short.ids, [], [], 0.0, 0.0, images=short.images)
    return [empty] * (-len(rows) % multiple)


def _check(row: TrainRow) -> None:
    spans: list[Span] = row.spans
    count = sum(span.end - span.start for span in spans)
    for name, values in (
        ("log-probabilities", row.logprobs),
        ("advantages", row.advantages),
        ("weights", row.weights),
    ):
        if len(values) != count and (values or name == "log-probabilities"):
            msg = f"Row {row.key!r} has {len(values)} {name} for {count} trained tokens."
            raise ValueError(msg)
    if any(not 1 <= span.start <= span.end <= len(row.ids) for span in spans):
        msg = f"Row {row.key!r} has a span outside 1..{len(row.ids)}: {spans!r}."
        raise ValueError(msg)
    if row.replays:
        msg = f"Row {row.key!r} was sampled with penalties, a bias or truncation; the engine 'verl' cannot rebuild that."
        raise ValueError(msg)
