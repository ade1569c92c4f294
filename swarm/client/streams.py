"""Tasks that can only be read forward: a file that is too large, a generator, a data set that is streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from swarm.client.errors import ClientUsageError
from swarm.client.tasks import Task, to_task


class TaskStream:
    """Tasks in the order of a source, read as they are needed and never kept.

    ``run_episodes`` takes each task once, in order, and tells the server how far it is, so that ``resume=True`` goes on there.
    Of an item that names no task its number within the pass is the id.
    """

    def __init__(
        self, source: Iterable[Any] | Callable[[], Iterable[Any]], *, epochs: int | None = None
    ) -> None:
        """Read ``source``, or what it returns when it is a function, from its beginning ``epochs`` times.

        Args:
            source: items as ``as_task_set`` takes them. An iterator (a generator) can be read once only; give the function
                that makes it when a resumed run or another epoch must begin again.
            epochs: passes through the source; None = without end (an iterator: one).

        Raises:
            ClientUsageError: ``source`` is neither, ``epochs`` is less than 1, or more than one pass of an iterator is asked for.
        """
        once = isinstance(source, Iterator)
        if not callable(source) and not hasattr(source, "__iter__"):
            raise ClientUsageError(
                f"A {type(source).__name__} is no source of tasks.",
                hint="Give an iterable, or a function that returns one.",
            )
        if epochs is not None and (epochs < 1 or (once and epochs > 1)):
            raise ClientUsageError(
                f"epochs={epochs!r} is not possible here.",
                hint="Give at least 1; an iterator can be read once, so give the function that makes it.",
            )
        self._source = source
        self._epochs = 1 if once else epochs

    def __iter__(self) -> Iterator[Task]:
        """The tasks, pass after pass; ends early when a pass is empty."""
        epoch = 0
        while self._epochs is None or epoch < self._epochs:
            source = self._source
            items = source() if callable(source) else source
            number = -1
            for number, item in enumerate(items):
                yield to_task(item, number)
            if number < 0:
                return
            epoch += 1
