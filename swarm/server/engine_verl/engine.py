"""The engine ``verl`` as an object in the child: worker group, rollout replicas, checkpoints, behind the calls of the child's loop."""

# pyright: reportMissingImports=false
# verl and vllm live in an environment of their own (make setup-verl).

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from swarm.protocol.config import TrainConfig
from swarm.protocol.errors import ConfigError, EngineFailed, StateError
from swarm.server.constraints import Grammars
from swarm.server.engine_verl import placement
from swarm.server.engine_verl.checkpoints import (
    CheckpointState,
    read_state,
    shards,
    write_checkpoint,
)
from swarm.server.engine_verl.keys import uses_reference
from swarm.server.engine_verl.losses import check_loss
from swarm.server.engine_verl.nonces import nonce_of
from swarm.server.engine_verl.rollout import Rollout
from swarm.server.engine_verl.trainer import Trainer
from swarm.server.model_files import resolve_model
from swarm.server.ports import Chunk, EngineInfo, GenerateRequest, TrainBatch, TrainResult
from swarm.server.train.slices import Slices
from swarm.server.train.statistics import UpdateStats

logger = logging.getLogger(__name__)

PIECE_S = 0.2
"""Between two looks at a running update the child can beat."""
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
        self._work = ThreadPoolExecutor(1, thread_name_prefix="update")
        began = time.monotonic()
        self._group, self._replicas = self._build()
        self._sync = self._synchroniser()
        self._facts = self._group.describe()[0]
        self._trainer = Trainer(
            self._group,
            config,
            data_parallel=self._facts["data_parallel"],
            has_reference=uses_reference(config),
        )
        self._rollout = Rollout(
            [replica.server_handle for replica in self._replicas], _grammars(self._folder)
        )
        self._state = self._restored(checkpoint)
        self._serve(self._state.policy_version)
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
        )

    @property
    def busy(self) -> bool:
        """Whether a generation is open."""
        return self._rollout.load > 0

    @property
    def load(self) -> int:
        """Generations that are open."""
        return self._rollout.load

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
            EngineFailed: a replica died; the front then boots the engine anew.
        """
        chunks = self._rollout.collect()
        if self._rollout.lost:
            raise EngineFailed(self._rollout.lost, hint="See the server's log.")
        return chunks

    def update(self, batch: TrainBatch) -> Slices[TrainResult]:
        """Consume one batch; the weights that sample after it are the new ones.

        Raises:
            StateError: generations are running.
            ValueError: a malformed row.
            EngineFailed: weights moved and what is served did not.
        """
        if self.busy:
            raise StateError(
                f"Batch {batch.step} arrived while generations were running.",
                hint="Finish or abort every generation before training.",
            )
        return (yield from _awaited(self._work.submit(self._update, batch)))

    def save(self, folder: str) -> dict[str, Any]:
        """Write a checkpoint; returns step, policy_version, fingerprint and path."""
        path, state = Path(folder), self._state

        def save_shards(place: str) -> None:
            self._group.save_checkpoint(place, global_step=state.step)

        write_checkpoint(path, state, self._folder, save_shards)
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

    def _build(self) -> tuple[Any, Any]:
        import ray
        from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
        from verl.utils.device import get_device_name

        from swarm.server.engine_verl.verl_config import compose
        from swarm.server.engine_verl.vllm_server import launch
        from swarm.server.engine_verl.worker import SwarmWorker

        verl = self._config.verl
        composed = compose(
            self._config, folder=str(self._folder), max_len=self._max_len, device=self._device
        )
        self._composed = composed
        nonce = nonce_of(dict(os.environ))
        pool = placement.pool_of(verl, nonce, wait_s=self._config.engine_hang_s)
        role = "actor_rollout_ref" if uses_reference(self._config) else "actor_rollout"
        workers = RayClassWithInitArgs(
            cls=ray.remote(SwarmWorker), config=composed.actor_rollout_ref, role=role
        )
        group = RayWorkerGroup(
            resource_pool=pool, ray_cls_with_init=workers, device_name=get_device_name()
        )
        group.init_model()
        return group, asyncio.run(launch(composed.actor_rollout_ref, group))

    def _synchroniser(self) -> Any:
        from verl.checkpoint_engine import CheckpointEngineManager
        from verl.utils.config import omega_conf_to_dataclass

        settings = omega_conf_to_dataclass(
            self._composed.actor_rollout_ref.rollout.checkpoint_engine
        )
        return CheckpointEngineManager(
            config=settings, actor_wg=self._group, replicas=self._replicas
        )

    def _restored(self, checkpoint: str | None) -> CheckpointState:
        if checkpoint is None:
            return CheckpointState(0, 0, self._fingerprint())
        folder = Path(checkpoint)
        state = read_state(folder)
        self._group.load_checkpoint(shards(folder), None, False)
        found = self._fingerprint()
        if found != state.fingerprint:
            raise EngineFailed(
                f"The weights of checkpoint {checkpoint!r} have fingerprint {found}, its record says {state.fingerprint}.",
                hint="The files were changed after saving; use an older checkpoint.",
            )
        return replace(state)

    def _fingerprint(self) -> str:
        return self._group.fingerprint()[0]

    def _serve(self, version: int) -> None:
        """Hand the trainer's weights to every replica, which forgets its prefix caches."""
        self._sync.update_weights(global_steps=version)
        self._served = self._rollout.served_fingerprints()

    def _update(self, batch: TrainBatch) -> TrainResult:
        sleeps = bool(self._composed.actor_rollout_ref.rollout.free_cache_engine)
        if sleeps:
            self._sync.sleep_replicas()
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
        served = self._served
        self._serve(version)
        if moved and set(served) & set(self._served):
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
    )


def _awaited(future: Future[ResultT]) -> Slices[ResultT]:
    """Yield while a thread works, and return what it returns."""
    while True:
        try:
            return future.result(timeout=PIECE_S)
        except NotYet:
            if future.done():
                raise
            yield


def _check(config: TrainConfig) -> None:
    check_loss(config.verl.loss)
    if config.asynchronous.enabled:
        raise ConfigError(
            "The engine 'verl' trains and samples in turns: asynchronous.enabled is not built for it.",
            hint="Leave asynchronous.enabled out, or use engine: torch on one GPU.",
        )
    if config.verl.rollout != "vllm":
        raise ConfigError(
            f"verl.rollout {config.verl.rollout!r} is not built yet.", hint="Use 'vllm'."
        )


def _grammars(folder: Path) -> Grammars:
    model = json.loads((folder / "config.json").read_text("utf-8"))
    eos = model.get("eos_token_id")
    return Grammars(folder, model["vocab_size"], eos if isinstance(eos, list) else [eos])


def _max_len(config: TrainConfig, folder: Path) -> int:
    built_for = int(
        json.loads((folder / "config.json").read_text("utf-8"))["max_position_embeddings"]
    )
    wanted = config.model.max_model_len or built_for
    if wanted > built_for:
        raise ConfigError(
            f"model.max_model_len {wanted} is more than the {built_for} positions of {config.model.path!r}.",
            hint=f"Set it to {built_for} or less, or leave it out.",
        )
    return wanted
