"""Advantages by one of verl's estimators, from the reward of each episode: rows in, rows out. numpy only; verl is handed in.

To verl a *sequence* is one response with a reward at its end. Here it is what one agent sampled in one episode: the trained
tokens of its rows, in their order. Groups are those of the front; the advantages that a client chose for tokens stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from swarm.server.engine_verl.batches import Floats, group_of
from swarm.server.ports import TrainRow


@dataclass(frozen=True)
class Sequences:
    """E sequences of at most L trained tokens. ``rows`` are their positions in the list of rows that was given."""

    rows: list[list[int]]
    index_E: npt.NDArray[np.object_]  # noqa: N815
    """Group and agent: what is compared with each other."""
    reward_E_L: Floats  # noqa: N815
    """The reward at the last token, 0 elsewhere."""
    mask_E_L: Floats  # noqa: N815
    old_E_L: Floats  # noqa: N815


Estimate = Callable[[Sequences], Floats]
"""Advantages [E, L]."""


def sequences_of(rows: Sequence[TrainRow]) -> Sequences:
    """Return the sequences of rows that are in order of key, each where its first row is."""
    members: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(rows):
        members.setdefault((row.episode_id, row.agent), []).append(at)
    parts = list(members.values())
    counts = [sum(len(rows[at].logprobs) for at in part) for part in parts]
    shape = (len(parts), max(counts, default=0))
    out = Sequences(
        rows=parts,
        index_E=np.array([f"{group_of(rows[p[0]].key)}/{rows[p[0]].agent}" for p in parts], object),
        reward_E_L=np.zeros(shape, np.float32),
        mask_E_L=np.zeros(shape, np.float32),
        old_E_L=np.zeros(shape, np.float32),
    )
    for index, (part, count) in enumerate(zip(parts, counts, strict=True)):
        out.mask_E_L[index, :count] = 1.0
        out.reward_E_L[index, count - 1] = rows[part[0]].reward
        out.old_E_L[index, :count] = [value for at in part for value in rows[at].logprobs]
    return out


def estimated(rows: Sequence[TrainRow], estimate: Estimate) -> list[TrainRow]:
    """Return copies of the rows (in order of key) with an advantage a token; rows with advantages of their own stay as they are."""
    sequences = sequences_of(rows)
    values = scattered(rows, sequences, estimate(sequences))
    return [
        row if row.advantages else msgspec.structs.replace(row, advantages=own)
        for row, own in zip(rows, values, strict=True)
    ]


def among_others(estimate: Estimate) -> Estimate:
    """Return ``estimate`` for the sequences that can be compared; one that is alone in its group gets 0."""

    def of_some(sequences: Sequences) -> Floats:
        count = Counter(sequences.index_E)
        kept = [at for at, group in enumerate(sequences.index_E) if count[group] > 1]
        value_E_L = np.zeros_like(sequences.mask_E_L)  # noqa: N806
        if kept:
            value_E_L[kept] = estimate(
                Sequences(
                    rows=[sequences.rows[at] for at in kept],
                    index_E=sequences.index_E[kept],
                    reward_E_L=sequences.reward_E_L[kept],
                    mask_E_L=sequences.mask_E_L[kept],
                    old_E_L=sequences.old_E_L[kept],
                )
            )
        return value_E_L

    return of_some


def scattered(
    rows: Sequence[TrainRow],
    sequences: Sequences,
    value_E_L: Floats,  # noqa: N803
) -> list[list[float]]:
    """Return what was computed for the sequences, row by row: one value a trained token."""
    out: list[list[float]] = [[] for _ in rows]
    for index, part in enumerate(sequences.rows):
        begin = 0
        for at in part:
            end = begin + len(rows[at].logprobs)
            out[at] = [float(value) for value in value_E_L[index, begin:end]]
            begin = end
    return out
