"""The screen of ``swarm watch``: a Textual app that looks at a server again and again. Nothing foreign is read as markup."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Vertical
from textual.widgets import DataTable, Footer, Label, ProgressBar, Static

from swarm.cli.watch_look import (
    Row,
    duration,
    headline,
    numbers_line,
    progress_line,
    tables,
    trouble_lines,
    waiting_line,
)
from swarm.plain import plain
from swarm.protocol.errors import SwarmError
from swarm.protocol.overview import Overview

Look = Callable[[], Awaitable[Overview]]
PageOf = Callable[[str], Awaitable[str]]
"""Episode id -> address of its page."""
NAMES = ("episodes", "groups", "clients", "errors")


class LiveTable(DataTable[Text]):
    """A table whose rows are replaced at each look; cursor and scroll position stay where they are."""

    def show(self, columns: tuple[str, ...], rows: list[Row]) -> None:
        """Show ``rows``; those that are still there are only changed."""
        if not self.columns:
            for name in columns:
                self.add_column(Text(name), key=name or "-")
        if [row.key for row in rows] != [key.value for key in self.rows]:
            self._replace(rows)
            return
        for row in rows:
            for name, cell in zip(columns, row.cells, strict=True):
                if self.get_cell(row.key, name or "-").plain != cell:
                    self.update_cell(row.key, name or "-", Text(cell), update_width=True)

    def _replace(self, rows: list[Row]) -> None:
        key, top = self.selected_key(), self.scroll_y
        self.clear()
        for row in rows:
            self.add_row(*map(Text, row.cells), key=row.key)
        if key is not None and any(row.key == key for row in rows):
            self.move_cursor(row=self.get_row_index(key), scroll=False)
        self.scroll_to(y=top, animate=False)

    def selected_key(self) -> str | None:
        """Return what the cursor's row is about; None in an empty table."""
        if not self.row_count:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value


class WatchApp(App[None]):
    """Looks every ``every_s`` seconds until it is left; a server that does not answer is told and asked again."""

    TITLE = "swarm watch"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "narrow"), (150, "wide")]  # noqa: RUF012 - textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("space", "pause", "Pause"),
        Binding("p", "page", "Page of the episode"),
    ]
    CSS = """
    #head { height: auto; padding: 0 1; }
    #state { text-style: bold; }
    #trouble { color: $warning; }
    #progress { width: 1fr; }
    #progress Bar { width: 1fr; }
    #away { color: $error; text-style: bold; }
    Grid { grid-size: 1 4; grid-gutter: 0 1; }
    .wide Grid { grid-size: 2 2; }
    .title { color: $text-muted; }
    LiveTable { height: 1fr; }
    """

    def __init__(self, look: Look, page_of: PageOf, *, every_s: float = 1.0) -> None:
        super().__init__()
        self._look = look
        self._page_of = page_of
        self._every_s = every_s
        self._paused = False
        self._answered = time.monotonic()
        self.looks = 0
        """Answers shown so far."""
        self.rounds = 0
        """Looks made or, while paused, left out."""

    def compose(self) -> ComposeResult:
        """Head, four tables, footer."""
        with Vertical(id="head"):
            yield Static("", id="state", markup=False)
            yield ProgressBar(total=1.0, show_eta=False, show_percentage=False, id="progress")
            for name in ("words", "numbers", "waiting", "trouble", "away"):
                yield Static("", id=name, markup=False)
        with Grid():
            for name in NAMES:
                with Vertical():
                    yield Label("", id=f"{name}-title", classes="title", markup=False)
                    yield LiveTable(id=name, cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.run_worker(self._watch(), name="watch")

    async def _watch(self) -> None:
        while True:
            if not self._paused:
                await self._look_once()
            self.rounds += 1
            await asyncio.sleep(self._every_s)

    async def _look_once(self) -> None:
        try:
            view: Overview | SwarmError = await self._look()
        except SwarmError as error:
            view = error
        if not self.query("#state"):
            return  # the screen went meanwhile: the app ends
        if isinstance(view, SwarmError):
            self._say_away(view)
        else:
            self.show(view)

    def show(self, view: Overview) -> None:
        """Show one look."""
        self._answered = time.monotonic()
        self._set("state", headline(view))
        self.query_one("#progress", ProgressBar).update(progress=view.progress)
        self._set("words", progress_line(view).partition("] ")[2].strip())
        self._set("numbers", numbers_line(view))
        self._set("waiting", waiting_line(view))
        self._set("trouble", "\n".join(trouble_lines(view)))
        self._set("away", "")
        for name, table in zip(NAMES, tables(view), strict=True):
            self.query_one(f"#{name}-title", Label).update(
                Text(f"{table.title} ({len(table.rows)})")
            )
            self.query_one(f"#{name}", LiveTable).show(table.columns, table.rows)
        self.looks += 1

    def _say_away(self, error: SwarmError) -> None:
        silent = duration(time.monotonic() - self._answered)
        self._set("away", f"no answer for {silent}; asking again: {plain(error.message, 300)}")

    def _set(self, name: str, text: str) -> None:
        widget = self.query_one(f"#{name}", Static)
        widget.update(Text(text))
        widget.display = bool(text)

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._paused = not self._paused
        self.notify("paused: space goes on" if self._paused else "going on", markup=False)

    async def action_page(self) -> None:
        """Copy the address of the chosen episode's page, and show it."""
        episode_id = self.query_one("#episodes", LiveTable).selected_key()
        if episode_id is None:
            return
        try:
            url = await self._page_of(episode_id)
        except SwarmError as error:
            self.notify(plain(error.message, 300), severity="error", markup=False)
            return
        self.copy_to_clipboard(url)
        self.notify(plain(url), title="copied; opens in a browser", markup=False, timeout=20)
