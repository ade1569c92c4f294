"""Task readers."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.client import (
    ClientUsageError,
    Task,
    TaskStream,
    as_task_set,
    read_dataset,
    read_documents,
    read_jsonl,
    stream_jsonl,
)
from swarm.client.readers import cuts


def ids(tasks: Any) -> list[str]:
    return [tasks[i].task_id for i in range(len(tasks))]


def test_jsonl_names_tasks_by_their_id_or_their_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": "a", "x": 1}\n\n{"id": 7}\n{"x": 2}\n"plain"\n')
    tasks = read_jsonl(path)
    assert [t.task_id for t in tasks] == ["a", "7", "3", "4"]
    assert tasks[0].payload == {"task_id": "a", "x": 1}
    assert tasks[3].payload == {"value": "plain"}
    assert list(stream_jsonl(path, epochs=1)) == tasks
    assert list(islice(stream_jsonl(path), 6)) == [*tasks, *tasks[:2]]


def test_a_broken_line_is_named_and_an_absent_file_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"x": 1}\n{oops\n')
    with pytest.raises(ClientUsageError, match="Line 2"):
        read_jsonl(path)
    with pytest.raises(ClientUsageError, match="cannot be read"):
        read_jsonl(tmp_path / "absent")


def test_documents_are_read_in_order_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b" / "ü x.md").write_text("second", encoding="utf-8")
    (tmp_path / "a.txt").write_bytes(b"first \xff")
    (tmp_path / "c.png").write_bytes(b"no text")
    (tmp_path / ".git" / "d.txt").write_text("hidden")
    tasks = read_documents(tmp_path)
    assert ids(tasks) == ["a.txt", "b/ü x.md"]
    assert tasks[0].payload["text"] == "first \ufffd"
    assert tasks[1].payload == {"text": "second", "path": "b/ü x.md", "start": 0}
    assert as_task_set(tasks) is tasks


def test_long_documents_become_several_tasks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\n\nthree four\nfive")
    (tmp_path / "b.txt").write_text("short")
    tasks = read_documents(tmp_path, max_chars=12)
    assert ids(tasks) == ["a.txt#0", "a.txt#9", "a.txt#20", "b.txt"]
    texts = [tasks[i].payload["text"] for i in range(4)]
    assert texts == ["one two\n\n", "three four\n", "five", "short"]


@given(text=st.text(alphabet="ab \n", max_size=60), size=st.integers(1, 9))
def test_parts_are_short_and_together_are_the_text(text: str, size: int) -> None:
    ends = list(cuts(text, size))
    parts = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert "".join(parts) == text
    assert all(len(part) <= size for part in parts)
    assert len(parts) == 1 or all(parts)


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientUsageError, match="no text file"):
        read_documents(tmp_path)
    with pytest.raises(ClientUsageError, match="not positive"):
        read_documents(tmp_path, max_chars=0)


def test_rows_by_index_become_tasks_without_being_copied() -> None:
    class Rows:
        def __len__(self) -> int:
            return 10**12

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"question": f"{index}+1"}

    tasks = read_dataset(Rows())
    assert tasks[10**11] == Task(str(10**11), {"question": f"{10**11}+1"})  # type: ignore[index]
    assert as_task_set(Rows())[3] == Task("3", {"question": "3+1"})


class TestHuggingFace:
    """With the library itself, on rows of our own: nothing is fetched."""

    @pytest.fixture(autouse=True)
    def needs_the_library(self) -> None:
        pytest.importorskip("datasets", reason="the optional datasets package is not installed")

    def test_rows_are_named_by_their_column_or_number(self) -> None:
        from datasets import Dataset

        rows = Dataset.from_list([{"q": "a", "name": "x"}, {"q": "b", "name": "y"}])
        assert read_dataset(rows)[1] == Task("1", {"q": "b", "name": "y"})  # type: ignore[index]
        assert ids(read_dataset(rows, id_column="name")) == ["x", "y"]
        assert ids(as_task_set(rows)) == ["0", "1"]
        with pytest.raises(ClientUsageError, match="no column 'nam'"):
            read_dataset(rows, id_column="nam")

    def test_an_id_that_occurs_twice_is_refused(self) -> None:
        from datasets import Dataset

        with pytest.raises(ClientUsageError, match="names several rows alike"):
            read_dataset(Dataset.from_list([{"id": 1}, {"id": 1}]))

    def test_a_split_must_be_chosen(self) -> None:
        from datasets import Dataset, DatasetDict

        splits = DatasetDict({"train": Dataset.from_list([{"q": 1}])})
        with pytest.raises(ClientUsageError, match=r"splits \(train\)"):
            read_dataset(splits)

    def test_a_streamed_data_set_is_a_stream_of_tasks(self) -> None:
        from datasets import Dataset

        rows = Dataset.from_list([{"id": f"r{i}"} for i in range(5)]).to_iterable_dataset()
        stream = read_dataset(rows)
        assert isinstance(stream, TaskStream)
        assert [task.task_id for task in islice(stream, 7)] == [
            *(f"r{i}" for i in range(5)),
            "r0",
            "r1",
        ]

    def test_a_file_is_loaded_by_the_library(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"id": "a"}\n{"id": "b"}\n')
        where = {"data_files": str(path), "cache_dir": str(tmp_path / "cache")}
        assert ids(read_dataset("json", **where)) == ["a", "b"]
        streamed = read_dataset("json", streaming=True, **where)
        assert [task.task_id for task in islice(iter(streamed), 2)] == ["a", "b"]  # type: ignore[call-overload]


def test_a_stream_reads_no_further_than_asked() -> None:
    read: list[int] = []

    def numbers() -> Any:
        for i in range(10**9):
            read.append(i)
            yield {"n": i}

    first = list(islice(TaskStream(numbers), 3))
    assert first == [Task(str(i), {"n": i}) for i in range(3)]
    assert read == [0, 1, 2]


def test_a_stream_repeats_what_can_be_read_again() -> None:
    assert [t.task_id for t in islice(TaskStream([1, 2]), 5)] == ["0", "1", "0", "1", "0"]
    assert [t.payload["value"] for t in TaskStream(lambda: iter("ab"), epochs=2)] == [*"abab"]
    assert len(list(TaskStream(iter(range(3))))) == 3
    assert list(TaskStream([])) == []


@pytest.mark.parametrize(("source", "epochs"), [(3, None), ([1], 0), (iter([1]), 2)])
def test_a_stream_that_can_never_work_is_refused(source: Any, epochs: int | None) -> None:
    with pytest.raises(ClientUsageError):
        TaskStream(source, epochs=epochs)


def test_an_endless_iterable_is_not_read_for_ever() -> None:
    with pytest.raises(ClientUsageError, match="TaskStream"):
        as_task_set(random.random() for _ in iter(int, 1))
    with pytest.raises(ClientUsageError, match="no set of tasks"):
        as_task_set(lambda i: i)
