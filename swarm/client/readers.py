"""Readers that make tasks of what people have: JSON lines, Hugging Face data sets, folders of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import orjson

from swarm.client.errors import ClientUsageError
from swarm.client.streams import TaskStream
from swarm.client.tasks import RowTasks, Task, to_task

TEXT_SUFFIXES = (".txt", ".md", ".rst")


def read_jsonl(path: str | Path) -> list[Task]:
    """Read one task a line; blank lines are skipped, ``task_id`` or ``id`` names the task, else its line number from 0.

    Raises:
        ClientUsageError: a line is not JSON (the line is named), or the file cannot be read.
    """
    return list(_jsonl_lines(Path(path)))


def stream_jsonl(path: str | Path, *, epochs: int | None = None) -> TaskStream:
    """The same as a stream: lines are read as they are needed, in order, ``epochs`` times (None: without end)."""
    return TaskStream(lambda: _jsonl_lines(Path(path)), epochs=epochs)


def _jsonl_lines(path: Path) -> Iterator[Task]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                if line.strip():
                    yield _json_task(path, number, line)
    except OSError as error:
        raise ClientUsageError(
            f"{str(path)!r} cannot be read: {error.strerror}.", hint="Give a file of JSON lines."
        ) from error


def _json_task(path: Path, number: int, line: bytes) -> Task:
    try:
        return to_task(orjson.loads(line), number)
    except orjson.JSONDecodeError as error:
        raise ClientUsageError(
            f"Line {number + 1} of {str(path)!r} is not JSON: {error}.",
            hint="Write one JSON value a line.",
        ) from error


def read_dataset(
    source: Any,
    *,
    split: str = "train",
    streaming: bool = False,
    id_column: str | None = None,
    **options: Any,
) -> RowTasks | TaskStream:
    """Tasks of a Hugging Face data set; a row's columns are the task's payload.

    Args:
        source: what ``datasets.load_dataset`` takes (a name on the hub, ``"json"``, a folder), or a data set already loaded.
        split: which one to load.
        streaming: read rows as they are needed, in order (a ``TaskStream``), instead of any row by its index.
        id_column: column that names the task; None = ``task_id`` or ``id`` where there is one, else the row's number.
        options: more arguments for ``load_dataset`` (``name``, ``data_files``, ``revision``, ...).

    Raises:
        ClientUsageError: the package is missing, the data set has several splits, or an id occurs twice.
    """
    rows = _load(source, split, streaming, options) if isinstance(source, str | Path) else source
    if isinstance(rows, Mapping):
        splits = ", ".join(map(str, cast("Mapping[Any, Any]", rows)))
        raise ClientUsageError(
            f"The data set has splits ({splits}), and none was chosen.",
            hint="Give one of them: dataset['train'].",
        )
    name = _namer(rows, id_column)
    if hasattr(rows, "__len__") and hasattr(rows, "__getitem__"):
        return RowTasks(rows, name)
    return TaskStream(lambda: _named_rows(rows, name))


def _load(source: str | Path, split: str, streaming: bool, options: dict[str, Any]) -> Any:
    try:
        # An optional dependency that takes a second to import.
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise ClientUsageError(
            "The datasets package is not installed.",
            hint="Install it with `pip install 'a3r[datasets]'`, or read a file with read_jsonl.",
        ) from error
    return datasets.load_dataset(str(source), split=split, streaming=streaming, **options)


def _namer(rows: Any, id_column: str | None) -> Callable[[Any, int], Task]:
    """How a row becomes a task. A column that should name tasks must name each row once, as far as that can be asked."""
    columns = cast("list[str] | None", getattr(rows, "column_names", None))
    column = id_column or next((c for c in ("task_id", "id") if columns and c in columns), None)
    if column is None:
        return to_task
    if columns is not None and column not in columns:
        raise ClientUsageError(
            f"The data set has no column {column!r}.", hint=f"Its columns: {', '.join(columns)}."
        )
    if hasattr(rows, "unique") and len(rows.unique(column)) < len(rows):
        raise ClientUsageError(
            f"Column {column!r} names several rows alike.",
            hint="Give an id_column whose values are all different; two tasks under one id would share groups.",
        )

    def named(row: Any, _index: int) -> Task:
        return Task(str(row[column]), dict(row))

    return named


def _named_rows(rows: Iterable[Any], name: Callable[[Any, int], Task]) -> Iterator[Task]:
    for number, row in enumerate(rows):
        yield name(row, number)


class DocumentTasks:
    """Text files as tasks, read when they are asked for: ``payload["text"]`` and ``payload["path"]``."""

    def __init__(self, root: Path, places: list[tuple[str, int, int | None]]) -> None:
        """Made by ``read_documents``: file below ``root``, first and last character of each task."""
        self._root, self._places = root, places
        several = {path for (path, *_), (other, *_) in pairwise(places) if path == other}
        self._in_parts = several

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self._places)

    def __getitem__(self, index: int) -> Task:
        """Read the text at ``index``; a file in several parts names them ``path#<first character>``."""
        path, start, end = self._places[index]
        text = _text_of(self._root / path)[start:end]
        name = f"{path}#{start}" if path in self._in_parts else path
        return Task(name, {"text": text, "path": path, "start": start})


def read_documents(
    folder: str | Path,
    *,
    suffixes: tuple[str, ...] = TEXT_SUFFIXES,
    max_chars: int | None = None,
) -> DocumentTasks:
    """Each text file below ``folder`` as one task, in order of their paths; the path is the id.

    Args:
        folder: searched with its subfolders; hidden files and folders are left out.
        suffixes: ends of the names to take.
        max_chars: a longer text becomes several tasks, cut after the last blank line (else line, else word) that fits.

    Raises:
        ClientUsageError: no such folder, no such file in it, or ``max_chars`` is not positive.
    """
    root = Path(folder)
    if max_chars is not None and max_chars < 1:
        raise ClientUsageError(f"max_chars={max_chars!r} is not positive.", hint="Leave it out.")
    files = sorted(
        path.relative_to(root).as_posix()
        for path in (root.rglob("*") if root.is_dir() else ())
        if path.suffix in suffixes and path.is_file() and not _hidden(path.relative_to(root))
    )
    if not files:
        raise ClientUsageError(
            f"There is no text file in {str(root)!r}.",
            hint=f"Give a folder with files that end in {', '.join(suffixes)}, or other suffixes.",
        )
    places: list[tuple[str, int, int | None]] = []
    for name in files:
        if max_chars is None:
            places.append((name, 0, None))
        else:
            ends = list(cuts(_text_of(root / name), max_chars))
            places += [(name, start, end) for start, end in pairwise([0, *ends])]
    return DocumentTasks(root, places)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _text_of(path: Path) -> str:
    # Bytes that are no UTF-8 stay visible as replacement characters; one bad file must not end a run.
    return path.read_text(encoding="utf-8", errors="replace")


def cuts(text: str, size: int) -> Iterator[int]:
    """Where to cut ``text`` into parts of at most ``size`` characters: ends of the parts, ascending; one for an empty text."""
    start = 0
    while len(text) - start > size:
        window = text[start : start + size]
        ends = (window.rfind(mark) + len(mark) for mark in ("\n\n", "\n", " ") if mark in window)
        start += next(ends, size)
        yield start
    yield len(text)
