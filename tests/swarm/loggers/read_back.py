"""``read_back.py LOGGER FOLDER RUN_ID``: what a logger's own files say, as JSON ``[[step, mean reward], ...]`` in file order.

A program of its own, so that five libraries and their warnings stay out of the test's process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

MEAN = "swarm/reward_mean"
LEVELDB_BLOCK = 32_768
LEVELDB_HEADER = 7
Rows = list[tuple[int, float]]


def tensorboard(folder: Path, run_id: str) -> Rows:
    module: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(folder / run_id))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(MEAN)]


def mlflow(folder: Path, run_id: str) -> Rows:
    client = import_module("mlflow").MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("proj")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == run_id
    assert found.data.params["batch.tasks"] == "1"
    history = client.get_metric_history(found.info.run_id, MEAN)
    return sorted((metric.step, metric.value) for metric in history)


def trackio(_folder: Path, run_id: str) -> Rows:
    """Its database is where ``TRACKIO_DIR`` says."""
    logs = import_module("trackio").SQLiteStorage.get_logs("proj", run_id)
    return [(entry["step"], entry[MEAN]) for entry in logs]


def wandb(folder: Path, run_id: str) -> Rows:
    record = import_module("wandb.proto.wandb_internal_pb2").Record
    rows: Rows = []
    for path in sorted(folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb")):
        for data in leveldb_records(path.read_bytes()):
            items = record.FromString(data).history.item
            values = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in items}
            if MEAN in values:
                rows.append((int(values["swarm/step"]), values[MEAN]))
    return rows


def leveldb_records(raw: bytes) -> list[bytes]:
    """Records of a file in LevelDB's log format, as wandb writes it: a file header, then records cut at blocks of 32 KiB."""
    found: list[bytes] = []
    at, part = LEVELDB_HEADER, b""
    while at + LEVELDB_HEADER <= len(raw):
        room = LEVELDB_BLOCK - at % LEVELDB_BLOCK
        if room < LEVELDB_HEADER:
            at += room
            continue
        length, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        part += raw[at + LEVELDB_HEADER : at + LEVELDB_HEADER + length]
        at += LEVELDB_HEADER + length
        if kind in (1, 4):  # a whole one, or the last piece
            found.append(part)
            part = b""
    return found


def swanlab(folder: Path, run_id: str) -> Rows:
    store: Any = import_module("swanlab.sdk.internal.core_python.store")
    record = import_module("swanlab.proto.swanlab.record.v1.record_pb2").Record
    rows: Rows = []
    for path in sorted((folder / run_id).glob("run-*/*.swanlab")):
        if not path.stat().st_size:
            continue  # nothing was flushed before the kill
        reader = store.DataStoreReader()
        reader.open(path)
        scalars = [record.FromString(data).scalar for data in reader]
        rows += [(one.step, one.value.number) for one in scalars if one.key == MEAN]
        reader.close()
    return rows


READERS: dict[str, Callable[[Path, str], Rows]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "swanlab": swanlab,
    "mlflow": mlflow,
    "trackio": trackio,
}

if __name__ == "__main__":
    rows = READERS[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
    sys.stdout.write("\n" + json.dumps(rows))
