"""The engine ``verl`` as an object in the child: worker group, rollout replicas, checkpoints, behind the calls of the child's loop."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, EngineFailed, StateError
from swarm.server.constraints import Grammars
from swarm.server.engine_verl import placement
from swarm.server.engine_verl.apart import replica_sizes
from swarm.server.engine_verl.budgets import row_multiple
from swarm.server.engine_verl.checkpoints import (
    CheckpointState,
    read_state,
    shards,
    write_checkpoint,
)
from swarm.server.engine_verl.keys import uses_critic, uses_reference
from swarm.server.engine_verl.losses import check_loss
from swarm.server.engine_verl.nonces import nonce_of
from swarm.server.engine_verl.picture_reader import PictureReader, reader_of
from swarm.server.engine_verl.rollout import Rollout
from swarm.server.engine_verl.supply import Supply
from swarm.server.engine_verl.trainer import Trainer
from swarm.server.model_files import resolve_model, text_config
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult
from swarm.server.train.slices import Slices
from swarm.server.train.statistics import UpdateStats

logger = logging.getLogger(__name__)

PIECE_S = 0.2
"""Between two looks at a running update the child can beat."""
SHARED_PIECE_S = 0.002
"""The same while generations go on: their tokens wait for it."""
LEAVE_S = 30.0
"""How long an update waits for generations that were aborted before it."""
ResultT = TypeVar("ResultT")


class VerlEngine:
    """One run's weights, held by Ray workers. The child's loop calls it from one thread.

    Raises (on construction):
        ConfigError: the configuration asks for what this engine, or the installed verl, does not have.
        EngineFailed: the cluster or a worker failed, or a checkpoint's weights are not those of its version file.
    """

    def __init__(self, config: TrainConfig, *, checkpoint: str | None, device: str) -> None:
        _check(config)
        self._config = config
        self._device = device
        self._folder = resolve_model(config.model.path)
        self._max_len = _max_len(config, self._folder)
        self._reader = reader_of(self._folder)
        _check_value_model(config, self._reader)
        self._late: list[Chunk] = []
        """Came while an update waited; for the next ``tick``."""
        self._work = ThreadPoolExecutor(1, thread_name_prefix="update")
        began = time.monotonic()
        self._group, self._replicas = self._build()
        self._facts = self._group.describe()[0]
        self._trainer = Trainer(
            self._group,
            config,
            multiple=self._multiple(self._facts["data_parallel"]),
            has_reference=uses_reference(config),
            reader=self._reader,
            **self._judges,
        )
        self._rollout = Rollout(
            self._replicas.servers,
            _grammars(self._folder),
            on_death=self._died,
            versioned=config.asynchronous.enabled,
            kind=config.verl.rollout,
        )
        self._supply = Supply(self._replicas, self._rollout)
        self._state = self._restored(checkpoint)
        self._work.submit(self._supply.serve, self._state.policy_version).result()
        logger.info("The engine verl booted in %.0f s.", time.monotonic() - began)

    def info(self) -> EngineInfo:
        """What to tell the front once booted."""
        return EngineInfo(
            fingerprint=self._state.fingerprint,
            max_model_len=self._max_len,
            policy_version=self._state.policy_version,
            device=self._facts["device"],
            parameters=self._facts["parameters"],
            pid=os.getpid(),
            image_tokens=0 if self._reader is None else self._reader.most_tokens,
        )

    @property
    def busy(self) -> bool:
        """Whether a generation is open, or chunks wait for a ``tick``."""
        return self._rollout.load > 0 or bool(self._late)

    @property
    def load(self) -> int:
        """Generations that are open."""
        return self._rollout.load

    @property
    def rollout(self) -> Rollout:
        """What samples."""
        return self._rollout

    @property
    def replicas(self) -> Any:
        """The ``Replicas`` that sample."""
        return self._replicas

    def submit(self, request: GenerateRequest) -> None:
        """Send a generation to its replica."""
        self._rollout.submit(request)

    def abort(self, request_id: str) -> list[Chunk]:
        """Stop a generation; its last chunk comes with a later ``tick``."""
        self._rollout.abort(request_id)
        return []

    def tick(self) -> list[Chunk]:
        """Return what was sampled meanwhile.

        Raises:
            EngineFailed: sampling cannot go on; the front then boots the engine anew.
        """
        chunks = self._late + self._rollout.collect()
        self._late = []
        if self._rollout.lost:
            raise EngineFailed(self._rollout.lost, hint="See the server's log.")
        return chunks

    def update(self, batch: TrainBatch) -> Slices[TrainResult]:
        """Consume one batch; the weights that sample after it are the new ones.

        An overlapped batch lets generations go on, with the old weights until the hand-over, which running ones survive.

        Raises:
            StateError: generations are running and the batch does not overlap them.
            ValueError: a malformed row.
            EngineFailed: weights moved and what is served did not.
        """
        if not batch.overlapped:
            yield from self._emptied()
        if self._rollout.load and not batch.overlapped:
            raise StateError(
                f"Batch {batch.step} arrived while generations were running.",
                hint="Finish or abort every generation before training.",
            )
        piece_s = SHARED_PIECE_S if batch.overlapped else PIECE_S
        done = self._work.submit(self._update, batch)
        return (yield from _awaited(done, piece_s, self._supply.check_stuck))

    def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint; returns step, policy_version, fingerprint and path."""
        path, state = Path(folder), self._state

        def save_shards(place: str) -> None:
            self._trainer.save(place, step=state.step)

        # In turn with whatever gives weights to a replica: both gather over all ranks.
        self._work.submit(write_checkpoint, path, state, self._folder, save_shards).result()
        return {
            "step": state.step,
            "policy_version": state.policy_version,
            "fingerprint": state.fingerprint,
            "path": str(path),
        }

    def close(self) -> None:
        """End the replicas, the workers and (when it is our own) Ray."""
        self._rollout.close()
        self._work.shutdown(wait=False)
        placement.leave_ray()

    # -- inside ---------------------------------------------------------------------------------------------

    def _emptied(self) -> Slices[None]:
        """Wait for what was aborted: to the front a caller that left a stream is gone at once, vLLM needs a moment more."""
        until = time.monotonic() + LEAVE_S
        while self._rollout.load and time.monotonic() < until:
            self._late += self._rollout.collect()
            yield

    def _build(self) -> tuple[Any, Any]:
        from swarm.server.engine_verl.group import judges, launch_workers
        from swarm.server.engine_verl.replicas import Replicas, check_backend, width
        from swarm.server.engine_verl.verl_config import compose

        verl = self._config.verl
        composed = compose(
            self._config,
            folder=str(self._folder),
            max_len=self._max_len,
            device=self._device,
            added=0 if self._reader is None else self._reader.blank_tokens,
        )
        self._composed = composed
        check_backend(composed.actor_rollout_ref.rollout, apart=verl.rollout_gpus is not None)
        nonce = nonce_of(dict(os.environ))
        wait_s = self._config.engine_hang_s
        pool = placement.pool_of(verl, nonce, wait_s=wait_s)
        role = "actor_rollout_ref" if uses_reference(self._config) else "actor_rollout"
        sizes = replica_sizes(verl, width(composed.actor_rollout_ref.rollout))
        pools = [
            placement.pool_of(verl, nonce, wait_s=wait_s, sizes=size, label=f"rollout{rank}-")
            for rank, size in enumerate(sizes)
        ]
        group = launch_workers(composed, pool, role)
        self._judges = judges(self._config, composed, pool)
        replicas = Replicas(
            composed.actor_rollout_ref, group, nonce=nonce, pools=pools if sizes else None
        )
        return group, replicas

    def _multiple(self, ranks: int) -> int:
        return row_multiple(self._composed, ranks, critic=uses_critic(self._config))

    def _restored(self, checkpoint: str | None) -> CheckpointState:
        if checkpoint is None:
            return CheckpointState(0, 0, self._fingerprint())
        folder = Path(checkpoint)
        state = read_state(folder)
        self._trainer.load(shards(folder))
        found = self._fingerprint()
        if found != state.fingerprint:
            raise EngineFailed(
                f"The weights of checkpoint {checkpoint!r} have fingerprint {found}, its record says {state.fingerprint}.",
                hint="The files were changed after saving; use an older checkpoint.",
            )
        return replace(state)

    def _fingerprint(self) -> str:
        return self._group.fingerprint()[0]

    def _died(self, _replica: int) -> None:
        """A replica died, and nobody may wait here: another one is launched in its place once no update runs."""
        self._work.submit(lambda: self._supply.mend(self._state.policy_version))

    def _update(self, batch: TrainBatch) -> TrainResult:
        sleeps = bool(self._composed.actor_rollout_ref.rollout.free_cache_engine)
        if sleeps:
            self._supply.sleep()
        stats = self._trainer.apply(batch)
        before = self._state.fingerprint
        fingerprint = self._fingerprint()
        moved = fingerprint != before
        version = batch.policy_version if moved else self._state.policy_version
        if moved or sleeps:
            self._hand_over(version, moved=moved)
        self._state = CheckpointState(batch.step, version, fingerprint)
        return _result(self._state, stats, moved=moved)

    def _hand_over(self, version: int, *, moved: bool) -> None:
        before = {name for names in self._supply.served.values() for name in names}
        self._supply.serve(version)
        after = {name for names in self._supply.served.values() for name in names}
        if moved and before & after:
            raise EngineFailed(
                "The trained weights moved and the served ones did not.",
                hint="The weight sync of verl and vLLM do not fit together; see docs/guides/gpu-cluster.md.",
            )


def _result(state: CheckpointState, stats: UpdateStats, *, moved: bool) -> TrainResult:
    return TrainResult(
        step=state.step,
        policy_version=state.policy_version,
        fingerprint=state.fingerprint,
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
    )


def _awaited(future: Future[ResultT], piece_s: float, check: Callable[[], None]) -> Slices[ResultT]:
    """Yield while a thread works, and return what it returns; ``check`` may raise in between."""
    while True:
        try:
            return future.result(timeout=piece_s)
        except NotYet:
            if future.done():
                raise
            check()
            yield


def _check(config: TrainConfig) -> None:
    check_loss(config.verl.loss)
    if config.asynchronous.enabled and config.verl.rollout_gpus is None:
        raise ConfigError(
            "asynchronous.enabled needs a rollout that does not give its GPUs to the trainer.",
            hint="Give it GPUs of its own in verl.rollout_gpus, or leave asynchronous.enabled out.",
        )
    if config.asynchronous.enabled and config.verl.rollout == "sglang":
        raise ConfigError(
            "asynchronous.enabled with verl.rollout 'sglang' is not built: its requests do not outlive a change of weights.",
            hint="Use verl.rollout: vllm, or leave asynchronous.enabled out.",
        )


def _check_value_model(config: TrainConfig, reader: PictureReader | None) -> None:
    if reader is not None and uses_critic(config):
        raise ConfigError(
            "verl.adv_estimator 'gae' trains a value model, and the value model of one that reads pictures is not built.",
            hint="Use another estimator, or leave verl.adv_estimator out.",
        )


def _grammars(folder: Path) -> Grammars:
    model = text_config(folder)
    eos: Any = model.get("eos_token_id")
    ids = eos if isinstance(eos, list) else [eos]
    return Grammars(folder, model["vocab_size"], [one for one in ids if isinstance(one, int)])


def _max_len(config: TrainConfig, folder: Path) -> int:
    built_for = int(text_config(folder)["max_position_embeddings"])
    wanted = config.model.max_model_len or built_for
    if wanted > built_for:
        raise ConfigError(
            f"model.max_model_len {wanted} is more than the {built_for} positions of {config.model.path!r}.",
            hint=f"Set it to {built_for} or less, or leave it out.",
        )
    return wanted
