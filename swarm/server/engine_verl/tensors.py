"""Row arrays as the tensors that verl's workers take, and what comes back of them."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

from swarm.server.engine_verl.batches import Floats, RowArrays
from swarm.server.engine_verl.picture_reader import PictureReader


def tensordict_of(
    arrays: RowArrays,
    *,
    scale: float = 1.0,
    reference_R_S: Floats | None = None,  # noqa: N803
    plain_R_S: Floats | None = None,  # noqa: N803
    more: Mapping[str, Floats] | None = None,
    reader: PictureReader | None = None,
    **settings: Any,
) -> TensorDict:
    """Return a batch without padding; ``scale`` multiplies the weights, ``settings`` are values for the whole batch.

    ``plain_R_S`` are the weights without importance, when those of the arrays have it.
    ``more`` are further arrays [R, S] by verl's name for them. ``reader`` is that of a model that reads pictures.
    """
    ids = torch.from_numpy(arrays.ids_R_T)
    length = torch.from_numpy(arrays.length_R)
    position = torch.arange(ids.shape[1])[None].expand(ids.shape[0], -1).contiguous()
    fields = {
        "prompts": ids[:, :1].contiguous(),
        "responses": ids[:, 1:].contiguous(),
        "input_ids": ids,
        "attention_mask": (position < length[:, None]).long(),
        "position_ids": _turned(arrays, reader) if reader and reader.turns else position,
        "response_mask": torch.from_numpy(arrays.trained_R_S).long(),
        "old_log_probs": torch.from_numpy(arrays.old_R_S),
        "advantages": torch.from_numpy(arrays.advantage_R_S),
        "rollout_is_weights": torch.from_numpy(arrays.weight_R_S * np.float32(scale)),
    }
    for name, values_R_S in (more or {}).items():  # noqa: N806
        fields[name] = torch.from_numpy(values_R_S)
    if plain_R_S is not None:
        fields["row_weights"] = torch.from_numpy(plain_R_S * np.float32(scale))
    if reference_R_S is not None:
        fields["ref_log_prob"] = torch.from_numpy(reference_R_S)
    warm = arrays.temperature_R
    if (warm == warm[0]).all():
        settings["temperature"] = float(warm[0])
    else:
        fields["temperature"] = torch.from_numpy(warm)
    data = left_right_2_no_padding(TensorDict(fields, batch_size=[ids.shape[0]]))
    if reader is not None and arrays.readings_R:
        # One mapping a row, as verl's agent loop makes them; its training engines put those of a micro batch together.
        given = [reader.inputs(readings) for readings in arrays.readings_R]
        tu.assign_non_tensor_stack(data, "multi_modal_inputs", given)
    tokens = [int(n) for n in arrays.length_R]
    tu.assign_non_tensor(data, global_token_num=tokens, global_batch_size=len(tokens), **settings)
    return data


def of_responses(output: Any, name: str, data: TensorDict) -> Floats:
    """Return a value a token that the workers computed, [R, S], 0 where a row has ended; ``data`` is what they were given."""
    values = output[name]
    return no_padding_2_padding(values, data).float().cpu().numpy()


def _turned(arrays: RowArrays, reader: PictureReader) -> torch.Tensor:
    """Positions [R, 4, T] for a model that turns; 0 where a row has ended."""
    longest = arrays.ids_R_T.shape[1]
    made: list[torch.Tensor] = []
    for index, length in enumerate(arrays.length_R.tolist()):
        readings = arrays.readings_R[index] if arrays.readings_R else []
        told = reader.positions(arrays.ids_R_T[index, :length].tolist(), readings)
        made.append(torch.nn.functional.pad(told, (0, longest - length)))
    return torch.stack(made)
