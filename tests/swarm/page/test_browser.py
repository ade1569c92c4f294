"""The page in a real browser: it is drawn, folds open, pages turn, and nothing foreign runs or is fetched."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from swarm.client import SwarmClient, watching
from swarm.testing.live_server import live_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright"),
]


class Trap:
    """An address that nobody must ever ask, and the text that tries to make a browser do so."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.text = (
            f"<script>document.title='owned'; fetch('{url}/f')</script>"
            f"<img src='{url}/x.png' onerror=\"document.title='owned'\">"
            f"<style>body{{background:url({url}/y)}}</style><iframe src='{url}/z'></iframe>"
            "\u202e\x1b[2J"
        )

    @property
    def sprung(self) -> bool:
        """Whether somebody asked for something. Chromium may dial ahead for a frame that it then refuses: it says nothing."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return False
            with connection:
                connection.settimeout(0.5)
                try:
                    if connection.recv(1):
                        return True
                except TimeoutError:
                    continue


@pytest.fixture
def trap() -> Generator[Trap]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Trap(listener)


@dataclass
class Seen:
    """What the browser asked for and complained about."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any) -> Generator[Callable[[str], tuple[Page, Seen]]]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})

    def open_page(url: str) -> tuple[Page, Seen]:
        page, seen = context.new_page(), Seen()
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.complaints.append(message.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.goto(url)
        return page, seen

    yield open_page
    context.close()


@dataclass
class Played:
    """A finished step's better episode, and where its server is."""

    client: SwarmClient
    episode_id: str


@pytest.fixture
def played(tmp_path: Path, trap: Trap) -> Generator[Played]:
    with (
        live_server(tmp_path / "state") as server,
        SwarmClient(server.url, server.tokens.admin) as client,
    ):
        batch = {"tasks": 1, "repeat": 2, "drain_deadline_s": 0.2}
        client.configure({"engine": "toy", "stop_at_step": 1, "batch": batch})
        client.start()
        for reward in (0.0, 1.0):
            with client.episode(trap.text) as episode:
                for turn in range(12):
                    text = f"What is {turn}+2? " * 10
                    episode.chat(
                        [
                            {"role": "system", "content": trap.text},
                            {"role": "user", "content": text},
                        ]
                    )
                episode.finish(reward, {trap.text: 1.0})
        client.wait_step(0, 20)
        yield Played(client, episode.id)


def test_the_page_shows_the_tree_and_opens_its_tables(played: Played, opened: Any) -> None:
    page, seen = opened(played.client.page_ticket(played.episode_id).url)
    assert page.title() == f"Episode {played.episode_id}"
    assert page.locator("article").count() == 12
    assert page.get_by_text("reward", exact=True).is_visible()
    strip = page.locator("article").first.locator(".strip .t.sampled").first
    assert strip.is_visible()
    told = strip.get_attribute("title") or ""
    for word in ("id ", "logprob", "sampled", "trained", "advantage 1"):
        assert word in told
    table = page.locator("article").first.locator("table").last
    assert not table.is_visible()
    page.locator("article").first.get_by_text("as a table").last.click()
    assert table.is_visible()
    assert table.locator("tbody tr").first.locator("td").nth(5).inner_text() == "trained"
    # The style sheet was accepted by the page's own policy.
    border = strip.evaluate("e => getComputedStyle(e).borderBottomColor")
    assert border == "rgb(5, 150, 105)"
    assert seen.complaints == []


def test_pages_of_a_long_episode_turn(played: Played, opened: Any) -> None:
    from playwright.sync_api import expect

    page, _ = opened(played.client.page_ticket(played.episode_id).url)
    link = page.locator("p.more a").first
    assert "prompt tokens from" in link.inner_text()
    link.click()
    expect(page.locator("article")).to_have_count(1)
    expect(page.locator(".strip .t.user").first).to_have_count(1)
    page.get_by_text("Back to the whole episode").click()
    expect(page.locator("article")).to_have_count(12)


@pytest.mark.parametrize("how", ["ticket", "file"])
def test_nothing_foreign_runs_or_is_fetched(
    played: Played, trap: Trap, opened: Any, tmp_path: Path, how: str
) -> None:
    url = played.client.page_ticket(played.episode_id).url
    if how == "file":
        path = tmp_path / "p é.html"
        path.write_bytes(played.client.send(watching.page(played.episode_id)))
        url = path.as_uri()
    page, seen = opened(url)
    assert page.title() == f"Episode {played.episode_id}"
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.styleSheets.length") == 1
    assert seen.requests == [url]
    assert seen.complaints == []
    assert not trap.sprung
    shown = page.locator("article").first.locator("details.message").first
    shown.click()
    assert "<script>document.title='owned'" in shown.inner_text()


def test_an_injected_script_would_not_run_either(
    played: Played, trap: Trap, opened: Any, tmp_path: Path
) -> None:
    """The second wall: with the escaping undone, the policy alone still stops everything."""
    raw = played.client.send(watching.page(played.episode_id)).decode()
    broken = raw.replace("<main>", f"<main>{trap.text}")
    path = tmp_path / "broken.html"
    path.write_text(broken, encoding="utf-8")
    page, seen = opened(path.as_uri())
    assert page.title() != "owned"
    assert not trap.sprung
    assert any("Content Security Policy" in text for text in seen.complaints)
