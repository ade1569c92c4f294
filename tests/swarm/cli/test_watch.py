"""``swarm watch``: one look as text, JSON lines, and the screen, driven by Textual's pilot against a live server."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyte
import pytest
from textual.pilot import Pilot
from textual.widgets import Label, Static

from swarm.cli.watch_app import LiveTable, WatchApp
from swarm.cli.watch_look import duration, lines, tables
from swarm.client import AsyncSwarmClient, SwarmClient
from swarm.protocol.episodes import GrantRequest
from swarm.protocol.errors import ServerUnreachable
from swarm.protocol.overview import GroupView, Overview, RecentError
from swarm.testing.live_server import LiveServer, live_server
from swarm.testing.waiting import retry_until as retry_until_soon

retry_until = partial(retry_until_soon, timeout_s=30.0)
"""A busy machine draws slowly."""
MAIN = "from swarm.cli import main; main()"
HOSTILE = "[red]x[/red] [/] [@click=app.quit]y \x1b[2J\x1b]0;owned\x07\u202eevil\n\x00 " + "z" * 500
SMALL = {"engine": "toy", "stop_at_step": 3, "batch": {"tasks": 2, "repeat": 2}}


@pytest.fixture
def server(tmp_path: Path) -> Generator[LiveServer]:
    with live_server(tmp_path / ".swarm") as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Generator[SwarmClient]:
    with SwarmClient(server.url, server.tokens.admin, "watched") as one:
        one.configure(SMALL)
        one.start()
        yield one


def command(server: LiveServer, *args: str) -> list[str]:
    return [sys.executable, "-c", MAIN, "watch", "--server", server.url, *args]


def environ(server: LiveServer) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SWARM_")}
    return {**clean, "SWARM_TOKEN": server.tokens.admin}


def run(server: LiveServer, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, *args),
        capture_output=True,
        text=True,
        env=environ(server),
        timeout=60,
        check=False,
    )


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


# -- text and JSON ----------------------------------------------------------------------------------------------


def test_one_look_is_text_for_people(server: LiveServer, client: SwarmClient) -> None:
    with client.episode("sum"):
        done = run(server, "--once")
    assert done.returncode == 0, done.stderr
    assert "ROLLING" in done.stdout
    assert "0 of 2 groups complete" in done.stdout
    assert "default/sum" in done.stdout
    assert "watched" in done.stdout
    # The same without a terminal, where no screen can be shown.
    assert "ROLLING" in run(server).stdout


def test_json_is_one_line_a_look_and_goes_on(server: LiveServer, client: SwarmClient) -> None:
    one = run(server, "--once", "--json")
    assert Overview.model_validate_json(one.stdout).status.state == "ROLLING"
    process = subprocess.Popen(
        command(server, "--json", "--every-s", "0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(server),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        for _ in range(3):
            assert Overview.model_validate_json(process.stdout.readline()).policy == "C2"
        process.stdout.close()  # as `| head -3` does
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


def test_a_look_that_fails_is_told_with_the_documented_exit_codes(server: LiveServer) -> None:
    nobody = [sys.executable, "-c", MAIN, "watch", "--server", "http://127.0.0.1:1", "--once"]
    env = {**environ(server), "SWARM_TOKEN": "wrong"}
    away = subprocess.run(nobody, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert (away.returncode, away.stdout) == (3, "")
    refused = subprocess.run(
        command(server, "--json"), capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "auth_failed"


def test_foreign_text_is_shown_without_any_power(client: SwarmClient) -> None:
    with client.episode(HOSTILE, task_set="[bold]set"):
        view = client.overview()
    hostile = view.model_copy(
        update={
            "errors": [RecentError(at=0.0, kind=HOSTILE, text=HOSTILE)],
            "groups": [one.model_copy(update={"group_id": HOSTILE}) for one in view.groups],
        }
    )
    text = "\n".join(lines(hostile))
    assert printable(text)
    assert "\\x1b" in text
    assert max(map(len, text.split("\n"))) < 500


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (12, "12 s"),
        (119, "119 s"),
        (180, "3 min"),
        (9000, "2.5 h"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_group_shows_mean_and_spread_and_nothing_while_nothing_finished(
    client: SwarmClient,
) -> None:
    view = client.overview()
    facts: dict[str, Any] = {
        "group_id": "g", "task_set": "s", "task_id": "t", "open": 1, "missing": 0, "dropped": False,
    }  # fmt: skip
    groups = [
        GroupView(**facts, finished=2, reward_mean=0.5, reward_std=0.25),
        GroupView(**facts, finished=0, reward_mean=None, reward_std=None),
    ]
    table = tables(view.model_copy(update={"groups": groups}))[1]
    assert [row.cells[5] for row in table.rows] == ["0.5 ± 0.25", "-"]


# -- the screen -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def screen(
    server: LiveServer, size: tuple[int, int] = (160, 50)
) -> AsyncGenerator[tuple[WatchApp, Pilot[None]]]:
    async with AsyncSwarmClient(server.url, server.tokens.admin, timeout_s=1.0) as client:

        async def page_of(episode_id: str) -> str:
            return (await client.page_ticket(episode_id)).url

        app = WatchApp(client.overview, page_of, every_s=0.02)
        async with app.run_test(size=size) as pilot:
            yield app, pilot


def text_of(app: WatchApp, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).content)


def cells(app: WatchApp, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name}", LiveTable)
    return [[cell.plain for cell in table.get_row_at(i)] for i in range(table.row_count)]


async def looked(app: WatchApp, more: int = 2) -> None:
    """Wait for that many further looks."""
    goal = app.looks + more
    await retry_until(lambda: app.looks >= goal, what="looks")


async def test_the_screen_shows_state_progress_and_what_runs(
    server: LiveServer, client: SwarmClient
) -> None:
    async with screen(server) as (app, pilot):
        await looked(app)
        assert "ROLLING" in text_of(app, "state")
        assert "0 of 2 groups complete" in text_of(app, "words")
        assert cells(app, "episodes") == []
        grant = await asyncio.to_thread(enter, client, "sum")
        await retry_until(lambda: len(cells(app, "episodes")) == 1)
        (row,) = cells(app, "episodes")
        assert row[0] == grant.id
        assert row[1] == "default/sum"
        assert cells(app, "groups")[0][:4] == ["s0.g0", "default/sum", "0", "1"]
        assert cells(app, "clients")[0][0] == "watched"
        await asyncio.to_thread(grant.abort, "no luck")
        await retry_until(lambda: cells(app, "errors") != [])
        assert "no luck" in cells(app, "errors")[0][2]
        assert cells(app, "episodes") == []
        await pilot.press("q")
    assert app.return_code == 0


def enter(client: SwarmClient, task_id: str) -> Any:
    """An episode that nobody ends."""
    client.register()
    request = GrantRequest(client_id=client.client_id, task_id=task_id, wait_s=5.0)
    return client.episode_of(client.grant(request), request)


async def test_the_screen_follows_a_step_to_the_next(
    server: LiveServer, client: SwarmClient
) -> None:
    def play() -> None:
        for task in ("a", "b"):
            for reward in (0.0, 1.0):
                with client.episode(task) as episode:
                    episode.chat([{"role": "user", "content": "hi"}])
                    episode.finish(reward)

    async with screen(server) as (app, _):
        await asyncio.to_thread(play)
        await retry_until(lambda: "step 1/3" in text_of(app, "state"))
        await looked(app)
        assert "version 1" in text_of(app, "state")
        assert "tokens/s" in text_of(app, "numbers")
        assert not text_of(app, "numbers").startswith("0 tokens/s")


async def test_hostile_text_is_not_interpreted_on_the_screen(
    server: LiveServer, client: SwarmClient
) -> None:
    async with screen(server) as (app, pilot):
        grant = await asyncio.to_thread(enter, client, HOSTILE[:120])
        await asyncio.to_thread(grant.chat, [{"role": "user", "content": "x"}])
        await retry_until(lambda: cells(app, "episodes") != [])
        assert cells(app, "episodes")[0][1].startswith("default/[red]x[/red] [/]")
        await asyncio.to_thread(grant.abort, HOSTILE)
        await retry_until(lambda: cells(app, "errors") != [])
        told = cells(app, "errors")[0][2]
        assert "[red]x[/red] [/] [@click=app.quit]y \\x1b[2J" in told
        assert told.isprintable()
        await pilot.click("#errors", offset=(60, 1))
        await looked(app)
        assert app.is_running
        # What the terminal gets holds no sequence from outside.
        shown = app.export_screenshot()
        assert "\x1b" not in shown
        assert "owned\x07" not in shown


async def test_cursor_and_scroll_stay_where_they_are_while_rows_come_and_go(
    server: LiveServer, client: SwarmClient
) -> None:
    async with screen(server) as (app, pilot):
        table = app.query_one("#episodes", LiveTable)
        grants = [await asyncio.to_thread(enter, client, name) for name in ("a", "a", "b")]
        await retry_until(lambda: len(cells(app, "episodes")) == 3)
        app.set_focus(table)
        await pilot.press("down")
        chosen = table.selected_key()
        assert chosen == cells(app, "episodes")[1][0]
        first = next(g for g in grants if g.id == cells(app, "episodes")[0][0])
        await asyncio.to_thread(first.abort, "gone")
        await retry_until(lambda: len(cells(app, "episodes")) == 2)
        assert table.selected_key() == chosen


def test_two_losses_of_one_task_in_the_same_instant_are_two_rows(client: SwarmClient) -> None:
    error = RecentError(
        at=1.0, kind="episode_aborted", text="default/t of client c: its lease ended"
    )
    view = client.overview().model_copy(update={"errors": [error] * 3})
    keys = [row.key for row in tables(view, now=2.0)[-1].rows]
    assert len(keys) == len(set(keys)) == 3


async def test_a_server_that_goes_away_and_comes_back_is_followed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with ExitStack() as first:
        server = first.enter_context(live_server(state))
        async with screen(server) as (app, _):
            await looked(app)
            await asyncio.to_thread(first.close)
            await retry_until(lambda: "no answer for" in text_of(app, "away"))
            assert "OFFLINE" in text_of(app, "state")  # what was last known stays
            with live_server(state, port=int(server.url.rpartition(":")[2])):
                await retry_until(lambda: text_of(app, "away") == "")
                await looked(app)


async def test_an_error_is_told_as_text(server: LiveServer) -> None:
    async def look() -> Overview:
        raise ServerUnreachable("[b]nobody[/b] \x1b[2Jthere", hint="")

    async def page_of(_episode_id: str) -> str:
        raise AssertionError

    app = WatchApp(look, page_of, every_s=0.02)
    async with app.run_test():
        await retry_until(lambda: app.rounds >= 2)
        assert "[b]nobody[/b] \\x1b[2Jthere" in text_of(app, "away")


async def test_pause_stops_looking_and_goes_on(server: LiveServer, client: SwarmClient) -> None:
    async with screen(server) as (app, pilot):
        await looked(app)
        await pilot.press("space")
        rounds = app.rounds
        await retry_until(lambda: app.rounds > rounds)  # the look that was under way
        held, rounds = app.looks, app.rounds
        await retry_until(lambda: app.rounds > rounds + 3)
        assert app.looks == held
        await pilot.press("space")
        await looked(app, 1)


async def test_the_page_of_the_chosen_episode_is_copied(
    server: LiveServer, client: SwarmClient
) -> None:
    async with screen(server) as (app, pilot):
        await pilot.press("p")  # nothing is chosen: nothing happens
        grant = await asyncio.to_thread(enter, client, "sum")
        await retry_until(lambda: cells(app, "episodes") != [])
        await pilot.press("p")
        await retry_until(lambda: f"/swarm/episodes/{grant.id}/page?ticket=" in app.clipboard)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (250, 70)])
async def test_the_screen_fits_any_terminal(
    server: LiveServer, client: SwarmClient, size: tuple[int, int]
) -> None:
    async with screen(server, size) as (app, _):
        await looked(app)
        assert app.query_one("#groups-title", Label).is_mounted
        assert ("wide" in app.screen.classes) == (size[0] >= 150)


def test_a_real_terminal_gets_no_foreign_sequence_and_q_leaves(
    server: LiveServer, client: SwarmClient
) -> None:
    """The command itself on a pseudo-terminal: what it writes is read byte by byte."""
    grant = enter(client, HOSTILE[:120])
    grant.abort(HOSTILE)
    enter(client, "sum")
    main, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    # A size that the caller exported would win over the size of the terminal itself.
    env = {key: value for key, value in environ(server).items() if key not in ("COLUMNS", "LINES")}
    env["TERM"] = "xterm-256color"
    process = subprocess.Popen(
        command(server), stdin=child, stdout=child, stderr=child, env=env, start_new_session=True
    )
    os.close(child)
    try:
        seen = read_until(main, screen_shows("sum", "owned"))
        assert b"\x1b]0;owned" not in seen
        assert b"\x1b[2J\x1b]0" not in seen
        assert b"\x00" not in seen
        os.write(main, b"q")
        read_until(main, lambda _more: process.poll() is not None)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)
        os.close(main)


def screen_shows(*words: str) -> Callable[[bytes], bool]:
    """Whether a terminal fed piece by piece shows all words; a part of the screen may be drawn at any time."""
    display = pyte.Screen(200, 50)
    stream = pyte.ByteStream(display)

    def shows(more: bytes) -> bool:
        stream.feed(more)
        text = "\n".join(display.display)
        return all(word in text for word in words)

    return shows


def read_until(main: int, enough: Callable[[bytes], bool], timeout_s: float = 120.0) -> bytes:
    """Read a terminal until ``enough`` says so of a next piece, or the program behind it ended."""
    seen, more, end = b"", b"", time.monotonic() + timeout_s
    while not enough(more):
        assert time.monotonic() < end, CSI.sub(b"", seen)[-4000:]
        more = b""
        if select.select([main], [], [], 0.1)[0]:
            try:
                more = os.read(main, 65_536)
            except OSError:  # the other side is closed
                break
        seen += more
    return seen


CSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
