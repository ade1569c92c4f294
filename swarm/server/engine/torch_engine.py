"""The embedded engine, as an object in the child: one model that both samples and trains."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, EngineFailed, StateError
from swarm.server.constraints import Grammars
from swarm.server.engine.checkpoint import (
    CheckpointState,
    load_optimizer,
    read_state,
    write_checkpoint,
)
from swarm.server.engine.model import Llama, LlamaConfig
from swarm.server.engine.sampler import Sampler
from swarm.server.engine.weights import fingerprint, load_model
from swarm.server.model_files import resolve_model
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult
from swarm.server.train.slices import Slices, finish
from swarm.server.train.statistics import UpdateStats
from swarm.server.train.update import Terms, Updater, make_optimizer

PIECE_FLOPS = 2_000_000_000
MOST_TOKENS, FEWEST_TOKENS = 1024, 256


class TorchEngine:
    """Model, sampler and optimizer of one run. Single-threaded; the child's loop calls it.

    With ``asynchronous.enabled`` the sampler has weights of its own, which change only when an update is complete.

    Raises (on construction):
        ConfigError: The model cannot be loaded, or ``max_model_len`` is longer than it was built for.
        EngineFailed: The checkpoint's weights are not those that its version file names.
    """

    def __init__(self, config: TrainConfig, *, checkpoint: str | None = None) -> None:
        self._config = config
        self._source = Path(checkpoint) if checkpoint else resolve_model(config.model.path)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = load_model(self._source, max_len=_max_len(config, self._source))
        self._model.to(self._device)
        self._fingerprint = fingerprint(self._model)
        self._optimizer = make_optimizer(self._model, config.optimizer)
        self._state = CheckpointState(0, 0, self._fingerprint)
        if checkpoint:
            self._restore(self._source)
        self._updater = Updater(
            self._model,
            self._optimizer,
            config.algorithm,
            grad_clip=config.optimizer.grad_clip,
            reference=self._reference_model,
        )
        self._reference: Llama | None = None
        if config.algorithm.kl_coef:
            self._reference_model()
        self._apart = config.asynchronous.enabled
        self._sampler = Sampler(
            self._model,
            _decoder(self._source),
            version=self._state.policy_version if self._apart else None,
            grammars=_grammars(self._source, self._model.config.vocab_size),
        )
        self._sampling_cpu_s = 0.0

    def info(self) -> EngineInfo:
        """What to tell the front once booted."""
        return EngineInfo(
            fingerprint=self._fingerprint,
            max_model_len=self._model.max_len,
            policy_version=self._state.policy_version,
            device=self._device,
            parameters=self._model.parameter_count(),
            pid=os.getpid(),
        )

    @property
    def busy(self) -> bool:
        """Whether a generation waits or runs."""
        return self._sampler.busy

    @property
    def load(self) -> int:
        """Generations that wait or run."""
        return self._sampler.load

    def submit(self, request: GenerateRequest) -> None:
        """Queue a generation."""
        self._sampler.submit(request)

    def abort(self, request_id: str) -> list[Chunk]:
        """Stop a generation; its final chunk, or nothing for an unknown id."""
        return self._sampler.abort(request_id)

    def tick(self) -> list[Chunk]:
        """Move every generation one token."""
        began = time.process_time()
        chunks = self._sampler.tick()
        self._sampling_cpu_s += time.process_time() - began
        return chunks

    def train(self, batch: TrainBatch) -> TrainResult:
        """``update`` in one go."""
        return finish(self.update(batch))

    def update(self, batch: TrainBatch) -> Slices[TrainResult]:
        """Consume one batch in pieces; the weights that sample after the last one are the new ones.

        Between two pieces an overlapped batch lets generations go on, with the old weights; nothing else may be called then.

        Raises:
            StateError: Generations are running and the batch or the engine does not overlap them.
            ValueError: A malformed row.
        """
        if self.busy and not (batch.overlapped and self._apart):
            raise StateError(
                f"Batch {batch.step} arrived while generations were running.",
                hint="Finish or abort every generation before training, or set asynchronous.enabled.",
            )
        stats = yield from self._updater.slices(batch.rows, self._terms(batch))
        before = self._fingerprint
        self._fingerprint = fingerprint(self._model)
        moved = self._fingerprint != before
        version = batch.policy_version if moved else self._state.policy_version
        if moved:
            self._sampler.weights_changed(version)
        self._state = CheckpointState(batch.step, version, self._fingerprint)
        return self._result(batch.step, stats, moved=moved)

    def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint; returns step, policy_version, fingerprint and path."""
        path = Path(folder)
        # Not from the checkpoint that this process began with: that one is deleted in time.
        small_files = resolve_model(self._config.model.path)
        write_checkpoint(path, self._model, self._optimizer, self._state, small_files)
        return {
            "step": self._state.step,
            "policy_version": self._state.policy_version,
            "fingerprint": self._fingerprint,
            "path": str(path),
        }

    def _terms(self, batch: TrainBatch) -> Terms:
        cap = self._config.asynchronous.importance_cap
        return Terms(
            lr=batch.lr,
            kl_coef=batch.kl_coef,
            importance_cap=cap if batch.overlapped else None,
            token_budget=self._piece_tokens() if batch.overlapped else None,
        )

    def _piece_tokens(self) -> int | None:
        """Padded tokens of one piece of an overlapped update, for which sampling waits; None = no need to make it small.

        A function of the model alone: pieces of another size round differently, and a replay must have the same bits.
        """
        if self._device != "cpu":
            return None
        fitting = PIECE_FLOPS // self._model.parameter_count()
        return max(FEWEST_TOKENS, min(MOST_TOKENS, fitting))

    def _reference_model(self) -> Llama:
        """The model that training began with, loaded when first asked for; never the checkpoint's."""
        if self._reference is None:
            folder = resolve_model(self._config.model.path)
            model = load_model(folder, max_len=self._model.max_len).to(self._device)
            self._reference = model.requires_grad_(requires_grad=False)
        return self._reference

    def _result(self, step: int, stats: UpdateStats, *, moved: bool) -> TrainResult:
        sampling, self._sampling_cpu_s = self._sampling_cpu_s, 0.0
        return TrainResult(
            step=step,
            policy_version=self._state.policy_version,
            fingerprint=self._fingerprint,
            moved=moved,
            rolled_back=stats.rolled_back,
            loss=stats.loss,
            grad_norm=stats.grad_norm,
            clip_fraction=stats.clip_fraction,
            entropy=stats.entropy,
            logprob_gap_max=stats.logprob_gap_max,
            tokens=stats.tokens,
            kl=stats.kl,
            importance_clipped_share=stats.importance_clipped_share,
            update_cpu_s=stats.cpu_s,
            sampling_cpu_s=sampling,
        )

    def _restore(self, folder: Path) -> None:
        state = read_state(folder)
        if state.fingerprint != self._fingerprint:
            raise EngineFailed(
                f"The weights of checkpoint {str(folder)!r} have fingerprint {self._fingerprint}, its record says {state.fingerprint}.",
                hint="The files were changed after saving; use an older checkpoint.",
            )
        load_optimizer(folder, self._optimizer)
        self._state = replace(state)


def _max_len(config: TrainConfig, folder: Path) -> int:
    built_for = LlamaConfig.from_folder(folder).max_position_embeddings
    wanted = config.model.max_model_len or built_for
    if wanted > built_for:
        raise ConfigError(
            f"model.max_model_len {wanted} is more than the {built_for} positions of {config.model.path!r}.",
            hint=f"Set it to {built_for} or less, or leave it out.",
        )
    return wanted


def _grammars(folder: Path, vocab_size: int) -> Grammars:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    eos = config.get("eos_token_id")
    return Grammars(folder, vocab_size, eos if isinstance(eos, list) else [eos])


def _decoder(folder: Path) -> Any:
    """Ids to text, special tokens included; the tokenizer is only read when a stop string needs it."""
    loaded: list[Tokenizer] = []

    def decode(ids: list[int]) -> str:
        if not loaded:
            loaded.append(Tokenizer.from_file(str(folder / "tokenizer.json")))
        return loaded[0].decode(ids, skip_special_tokens=False)

    return decode
