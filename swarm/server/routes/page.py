"""The web page of one episode, and the tickets that open it in a browser."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from swarm.protocol.overview import PageTicket
from swarm.protocol.records import EpisodeTrace
from swarm.server.page.render import CSP, Link, render_page
from swarm.server.page.view import TOKENS_A_PAGE, Choice
from swarm.server.routes.auth import ANY, Gate
from swarm.server.routes.episodes import dialled_url
from swarm.server.service.service import SwarmService
from swarm.server.tickets import LONGEST_S, TICKET_S, PageTickets

AT_ONCE = 2
"""Pages that are written at the same time (in threads); more wait."""
HEADERS = {
    "content-security-policy": f"{CSP}; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def page_router(
    service: SwarmService, gate: Gate, tickets: PageTickets, *, trust_proxy: bool
) -> APIRouter:
    """Return the router of episode pages over ``service``."""
    router = APIRouter(prefix="/swarm/episodes", tags=["episodes"])
    _add_ticket(router, service, gate, tickets, trust_proxy=trust_proxy)
    _add_page(router, service, gate, tickets)
    return router


def _require_reader(request: Request, service: SwarmService, gate: Gate, episode_id: str) -> None:
    power = gate.power(request, ANY)
    gate.require_episode(service.trace(episode_id, calls=False), power, read=True)


def _add_ticket(
    router: APIRouter, service: SwarmService, gate: Gate, tickets: PageTickets, *, trust_proxy: bool
) -> None:
    @router.post("/{episode_id}/ticket", summary="An address that opens the episode's web page")
    async def make_ticket(
        episode_id: str,
        request: Request,
        valid_s: Annotated[float, Query(gt=0, le=LONGEST_S, description="Seconds.")] = TICKET_S,
    ) -> PageTicket:
        """Whoever may read the episode's trace. The ticket opens this page only, without a token, until it expires."""
        _require_reader(request, service, gate, episode_id)
        expires_at = service.monitor.now() + valid_s
        query = urlencode({"ticket": tickets.issue(episode_id, expires_at)})
        root = dialled_url(request, trust_proxy=trust_proxy)
        path = f"/swarm/episodes/{quote(episode_id, safe='')}/page"
        return PageTicket(episode_id=episode_id, url=f"{root}{path}?{query}", expires_at=expires_at)


def _add_page(router: APIRouter, service: SwarmService, gate: Gate, tickets: PageTickets) -> None:
    writing = asyncio.Semaphore(AT_ONCE)

    @router.get(
        "/{episode_id}/page", summary="The episode as a web page", response_class=HTMLResponse
    )
    async def get_page(
        episode_id: str,
        request: Request,
        ticket: Annotated[str, Query(description="Instead of a token.")] = "",
        call: Annotated[int | None, Query(ge=0, description="Tokens of this call only.")] = None,
        part: Annotated[Literal["prompt", "answer"], Query()] = "answer",
        first: Annotated[int, Query(ge=0, description="First token of that part.")] = 0,
        whole: Annotated[bool, Query(description="All tokens at once, for a file.")] = False,
    ) -> HTMLResponse:
        """Every call as a tree, every token with its log-probability, mask and why. With a ticket, or a token that may read it."""
        if ticket:
            tickets.check(ticket, episode_id, service.monitor.now())
        else:
            _require_reader(request, service, gate, episode_id)
        choice = Choice(call, part, first, None if whole else TOKENS_A_PAGE)
        async with writing:
            text = await _written(service, episode_id, choice, None if whole else _linker(ticket))
        return HTMLResponse(text, headers=HEADERS)


async def _written(
    service: SwarmService, episode_id: str, choice: Choice, link: Link | None
) -> str:
    trace: EpisodeTrace = service.trace(episode_id, calls=True)
    tokenizer = service.monitor.tokenizers.of_episode(episode_id)
    return await asyncio.to_thread(render_page, trace, tokenizer, choice, link, service.redactor)


def _linker(ticket: str) -> Link:
    """Addresses relative to the page; they carry the same ticket. A negative call stands for the whole episode."""

    def link(call: int, part: str, first: int) -> str:
        query: dict[str, str | int] = {"ticket": ticket} if ticket else {}
        if call >= 0:
            query |= {"call": call, "part": part, "first": first}
        return f"?{urlencode(query)}"

    return link
