"""Where a watch writes: plain lines for pipes and logs, a small live table for terminals. Always stderr."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from a3r.cli.edge import printable, say
from a3r.cli.progress import gain_text, overview, run_text

Json = dict[str, Any]

OVERVIEW_EVERY_S = 30.0


class View(Protocol):
    """Shows lines, and how far the campaign is."""

    def __enter__(self) -> View: ...
    def __exit__(self, *exc: object) -> None: ...
    def line(self, text: str) -> None:
        """One line that stays."""
        ...

    def state(self, campaign: Json, runs: list[Json]) -> None:
        """How things are now."""
        ...


class PlainView:
    """Lines; an overview when nothing else was said for a while."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._shown = ""

    def __enter__(self) -> PlainView:
        """Itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Nothing to clean up."""

    def line(self, text: str) -> None:
        """Write it."""
        say(printable(text))
        self._last = time.monotonic()

    def state(self, campaign: Json, runs: list[Json]) -> None:
        """Write an overview if it is new and nothing was written for a while."""
        text = f"          {overview(campaign, runs)}"
        if time.monotonic() - self._last >= OVERVIEW_EVERY_S and text != self._shown:
            self._shown = text
            self.line(text)


class LiveView:
    """Lines that scroll, above a table of the runs under way."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=sys.stderr, highlight=False, markup=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Take the table away; the lines stay."""
        self._live.stop()

    def line(self, text: str) -> None:
        """Print above the table."""
        self._console.print(printable(text), soft_wrap=True)

    def state(self, campaign: Json, runs: list[Json]) -> None:
        """Draw the table anew."""
        from rich.table import Table

        table = Table(title=printable(overview(campaign, [])), title_justify="left", box=None)
        for column in ("run", "state", "what", ""):
            table.add_column(column)
        active = [r for r in runs if r["state"] == "active"]
        for run in active[:12]:
            table.add_row(
                printable(run_text(run)),
                str(run["attempt_state"]),
                printable(str(run["detail"]))[:60],
                "" if run["gain"] is None else gain_text(run["gain"]),
            )
        self._live.update(table, refresh=True)


def choose_view() -> PlainView | LiveView:
    """A live table when a person looks, plain lines otherwise."""
    return LiveView() if sys.stderr.isatty() else PlainView()
