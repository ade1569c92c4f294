"""The requests of whoever watches a server: the overview, and an episode's web page."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from swarm.client.calls import Call, reader_of
from swarm.protocol.overview import Overview, PageTicket


def overview() -> Call[Overview]:
    """``GET /swarm/overview``."""
    return Call("GET", "/swarm/overview", reader_of(Overview))


def page_ticket(episode_id: str, valid_s: float | None = None) -> Call[PageTicket]:
    """``POST /swarm/episodes/{id}/ticket``: an address that opens the page for a while; None = the server's own choice."""
    query = "" if valid_s is None else "?" + urlencode({"valid_s": valid_s})
    return Call("POST", f"{_episode(episode_id)}/ticket{query}", reader_of(PageTicket), b"")


def page(episode_id: str) -> Call[bytes]:
    """``GET /swarm/episodes/{id}/page``: the whole page as a file."""
    return Call("GET", f"{_episode(episode_id)}/page?whole=true", bytes, deadline_s=300.0)


def _episode(episode_id: str) -> str:
    return f"/swarm/episodes/{quote(episode_id, safe='')}"
