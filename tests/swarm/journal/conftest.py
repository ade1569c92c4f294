"""A fresh journal with a configured run, and builders of small records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.protocol.config import TrainConfig
from swarm.protocol.records import CallRecord, StepMetrics
from swarm.protocol.states import EpisodeKind, FateReason, TokenFate
from swarm.server.journal.journal import Journal
from swarm.server.journal.records import EpisodeRecord
from swarm.server.ports import Span, TrainBatch, TrainRow


class Build:
    """Small records with sensible values."""

    @staticmethod
    def episode(
        episode_id: str, *, step: int = 0, kind: EpisodeKind = EpisodeKind.TRAIN
    ) -> EpisodeRecord:
        return EpisodeRecord(
            episode_id=episode_id,
            kind=kind,
            client_id="c",
            task_set="sums",
            task_id=f"task of {episode_id}",
            group_id=f"s{step}.g0",
            repeat_index=1,
            step=step,
            policy_version=step,
            granted_at=10.5,
        )

    @staticmethod
    def call(index: int = 0) -> CallRecord:
        return CallRecord(
            index=index,
            policy_version=2,
            messages=[{"role": "user", "content": "Zähle 🙂", "parts": [None, 1.5, True]}],
            tools=[{"function": {"name": "calculator"}}],
            reply={"role": "assistant", "content": None},
            finish_reason="stop",
            prompt_ids=[1, 2, 300_000],
            sampled_ids=[4, 5],
            logprobs=[-0.1, -1e-9],
            temperature=0.7,
            max_tokens=16,
            requested={"temperature": 0.7},
            fate=TokenFate.MASKED,
            fate_reason=FateReason.ZERO_ADVANTAGE,
        )

    @staticmethod
    def batch(step: int) -> TrainBatch:
        row = TrainRow(
            key=f"g/{step}/0",
            episode_id="a",
            ids=[1, 2, 3],
            spans=[Span(1, 3, 1.0)],
            logprobs=[-0.25, -1 / 3],
            advantage=-0.1,
            weight=1 / 7,
        )
        return TrainBatch(step=step, policy_version=step, rows=[row])

    @staticmethod
    def metrics(step: int) -> StepMetrics:
        return StepMetrics(
            step=step,
            policy_version=step,
            updated=True,
            groups=1,
            episodes=4,
            reward_mean=0.5,
            reward_std=0.5,
            zero_advantage_share=0.0,
            turns_mean=2.0,
            truncated_share=0.0,
            response_tokens_mean=7.5,
            loss=1 / 3,
            grad_norm=1.0,
            clip_fraction=0.0,
            entropy=None,
            logprob_gap_max=None,
            tokens={"trained": 30},
            rows=4,
            calls=8,
            episodes_dropped={},
            divergences=0,
            fingerprint=f"fp{step}",
            rollout_s=1.0,
            drain_s=0.0,
            update_s=0.1,
            sampling_cpu_s=None,
            update_cpu_s=None,
            front_cpu_s=None,
            finished_at=99.0,
        )


@pytest.fixture
def build() -> type[Build]:
    return Build


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, now=lambda: 50.0)
    opened.set_config(TrainConfig(run_name="first", seed=4), "inc-1")
    yield opened
    opened.close()
