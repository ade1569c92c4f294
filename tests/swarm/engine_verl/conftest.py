"""Rows of several groups, with merged spans and two temperatures."""

import random
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm.server.engine.wire import Boot
from swarm.server.engine_verl.checkpoints import (
    CheckpointState,
    shards,
    write_checkpoint,
)
from swarm.server.engine_verl.nonces import NONCE
from swarm.server.model_files import resolve_model
from swarm.server.ports import Span, TrainRow


def made_rows(seed=2, groups=4, repeats=3):
    """Rows whose weights sum to one over the trained tokens; ids below 40."""
    rng = random.Random(seed)
    rows = []
    for group in range(groups):
        for repeat in range(repeats):
            length = rng.randint(8, 24)
            middle = rng.randint(3, length - 3)
            spans = [Span(2, middle, 1.0), Span(middle + 1, length, rng.choice((1.0, 0.7)))]
            count = sum(s.end - s.start for s in spans)
            rows.append(
                TrainRow(
                    key=f"s0.g{group}/{repeat}/0",
                    episode_id=f"e{group}.{repeat}",
                    ids=[rng.randrange(40) for _ in range(length)],
                    spans=spans,
                    logprobs=[-1.0 - rng.random() for _ in range(count)],
                    advantage=rng.uniform(-1, 1),
                    weight=0.0,
                    weights=[rng.choice((0.0, 1.0, 0.5)) for _ in range(count)],
                )
            )
    total = sum(len(row.logprobs) for row in rows)
    for row in rows:
        row.weight = 1 / total
    return rows


@pytest.fixture
def rows():
    return made_rows()


@pytest.fixture(scope="session")
def driven():
    """``driven(nonce, config)``: the engine in this process, under a driver."""

    @contextmanager
    def driving(nonce, config):
        from swarm.server.engine_verl.child import boot
        from swarm.testing.verl_sampling import Driver

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(NONCE, nonce)
            engine = boot(Boot(config.model_dump_json()))
            try:
                yield Driver(engine, config)
            finally:
                engine.close()

    return driving


@pytest.fixture(scope="session")
def make_rows():
    return made_rows


class Bench:
    """Training workers of the engine without replicas, as many as ``config.verl`` asks for. Needs a Ray to be joined."""

    def __init__(self, config, nonce):
        from swarm.server.engine_verl import placement
        from swarm.server.engine_verl.budgets import row_multiple
        from swarm.server.engine_verl.group import judges, launch_workers
        from swarm.server.engine_verl.picture_reader import reader_of
        from swarm.server.engine_verl.trainer import Trainer
        from swarm.server.engine_verl.verl_config import compose

        self.folder = resolve_model(config.model.path)
        self.composed = compose(config, folder=str(self.folder), max_len=128, device="cpu")
        self.pool = placement.pool_of(config.verl, nonce)
        self.group = launch_workers(self.composed, self.pool, "actor")
        self.judges = judges(config, self.composed, self.pool)
        ranks = self.group.describe()[0]["data_parallel"]
        multiple = row_multiple(self.composed, ranks, critic="critic" in self.judges)
        self.trainer = Trainer(
            self.group,
            config,
            multiple=multiple,
            has_reference=False,
            reader=reader_of(self.folder),
            **self.judges,
        )

    def fingerprints(self):
        """What each rank says that the weights are."""
        return self.group.fingerprint()

    def save(self, folder):
        """A checkpoint as the engine writes it."""
        state = CheckpointState(0, 0, self.fingerprints()[0])
        write_checkpoint(folder, state, self.folder, lambda place: self.trainer.save(place, step=0))
        return folder

    def load(self, folder):
        self.trainer.load(shards(folder))

    def close(self):
        """End the workers and give their places back."""
        import ray
        from ray.util import remove_placement_group

        groups = [self.group, *(critic.group for critic in [self.judges.get("critic")] if critic)]
        for worker in (worker for group in groups for worker in group.workers):
            ray.kill(worker)
        for place in self.pool.get_placement_groups(device_name="cpu"):
            remove_placement_group(place)


@pytest.fixture(scope="session")
def make_bench():
    return Bench


def _engine_of(server_pid):
    """Pid and nonce of the engine child of a server process."""
    tasks = Path(f"/proc/{server_pid}/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    (pid,) = [
        p for p in children if b"engine_verl.child" in Path(f"/proc/{p}/cmdline").read_bytes()
    ]
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (nonce,) = [v.split(b"=")[1].decode() for v in variables if v.startswith(NONCE.encode())]
    return pid, nonce


@pytest.fixture(scope="session")
def engine_of():
    """``engine_of(server_pid)``: see ``_engine_of``."""
    return _engine_of
