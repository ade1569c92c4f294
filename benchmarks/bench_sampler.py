"""Sampler tokens/s beside Hugging Face ``generate`` on the same model, same prompts, same number of new tokens.

Needs transformers (``pip install transformers``); without it only our side is measured and the ratio is left out.
"""

from __future__ import annotations

import importlib.util

import torch
from common import best_of, write_result

from swarm.protocol.config import TrainConfig
from swarm.server.engine.torch_engine import TorchEngine
from swarm.server.model_files import resolve_model
from swarm.server.ports import GenerateRequest

NEW_TOKENS = 32
PROMPT_TOKENS = 48


def prompts(batch: int) -> list[list[int]]:
    """Random prompts of equal length (so that neither side pays for padding)."""
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(5, 300, (batch, PROMPT_TOKENS), generator=generator).tolist()


def ours(engine: TorchEngine, rows: list[list[int]], tag: str) -> None:
    """Sample NEW_TOKENS for every row; no stop token, so both sides do the same work."""
    for index, ids in enumerate(rows):
        engine.submit(
            GenerateRequest(
                request_id=f"{tag}{index}", prompt_ids=ids, max_tokens=NEW_TOKENS, temperature=1.0,
                stop_token_ids=[], noise_key=f"{tag}/{index}", affinity=f"{tag}{index}",
            )
        )  # fmt: skip
    done = 0
    while engine.busy:
        done += sum(chunk.finish is not None for chunk in engine.tick())
    assert done == len(rows)


def main() -> None:
    """Measure batches of 1, 16 and 64."""
    torch.set_num_threads(1)
    engine = TorchEngine(TrainConfig())
    reference = None
    if importlib.util.find_spec("transformers"):
        from transformers import AutoModelForCausalLM  # noqa: PLC0415 - optional

        reference = AutoModelForCausalLM.from_pretrained(resolve_model("builtin:tiny-calc"))
        reference.generation_config.eos_token_id = None
    rows = []
    for batch in (1, 16, 64):
        ids = prompts(batch)
        calls = iter(range(1000))
        wall = best_of(
            5, lambda ids=ids, calls=calls: ours(engine, ids, f"{len(ids)}.{next(calls)}.")
        )
        row = {"batch": batch, "ours_tokens_per_s": round(batch * NEW_TOKENS / wall)}
        if reference is not None:
            tensor = torch.tensor(ids)
            mask = torch.ones_like(tensor)

            def generate(tensor=tensor, mask=mask) -> None:
                reference.generate(
                    tensor, attention_mask=mask, do_sample=True, top_k=0,
                    min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, pad_token_id=0,
                )  # fmt: skip

            theirs = best_of(5, generate)
            row["hf_tokens_per_s"] = round(batch * NEW_TOKENS / theirs)
            row["ratio"] = round(theirs / wall, 2)
        rows.append(row)
    write_result(
        "sampler",
        "make bench",
        {"prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS, "rows": rows},
    )


if __name__ == "__main__":
    main()
