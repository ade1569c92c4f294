"""The page of an episode over HTTP: who may open it, with what, and for how long."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from swarm.protocol.episodes import AbortRequest, Grant
from swarm.protocol.errors import AuthError
from swarm.server.page.view import TOKENS_A_PAGE
from swarm.server.service.calls import ChatCall
from swarm.server.tickets import PageTickets
from swarm.testing.server_fixture import ask, reply_to


def test_a_ticket_opens_its_own_episode_until_it_expires():
    tickets = PageTickets("secret")
    ticket = tickets.issue("ep-1", 100.0)
    tickets.check(ticket, "ep-1", 99.9)
    for damaged, episode, now in (
        (ticket, "ep-2", 0.0),
        (ticket, "ep-1", 100.0),
        (ticket[:-1], "ep-1", 0.0),
        ("", "ep-1", 0.0),
        ("é.x", "ep-1", 0.0),
        (PageTickets("other").issue("ep-1", 100.0), "ep-1", 0.0),
    ):
        with pytest.raises(AuthError) as refused:
            tickets.check(damaged, episode, now)
        assert ticket not in str(refused.value)


async def grant_of(rig, kind="train", key=None, client_id="c1"):
    return (await rig.grant(kind, key, client_id))["episode_id"]


async def test_a_browser_opens_the_page_with_a_ticket_and_without_a_token(rig):
    episode = await grant_of(rig)
    made = await rig.ask("POST", f"/swarm/episodes/{episode}/ticket", rig.tokens.client)
    assert made.status_code == 200, made.text
    url = made.json()["url"]
    assert url.startswith(f"{rig.url}/swarm/episodes/{episode}/page?ticket=")
    page = await rig.ask("GET", url)
    assert page.status_code == 200, page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert (page.headers["cache-control"], page.headers["referrer-policy"]) == (
        "no-store",
        "no-referrer",
    )
    assert rig.tokens.client not in page.text


async def test_a_ticket_opens_nothing_else(rig):
    episode, other = await grant_of(rig), await grant_of(rig, client_id="c2")
    made = await rig.ask("POST", f"/swarm/episodes/{episode}/ticket", rig.tokens.client)
    ticket = parse_qs(urlsplit(made.json()["url"]).query)["ticket"][0]
    other_page = await rig.ask("GET", f"/swarm/episodes/{other}/page", params={"ticket": ticket})
    assert other_page.status_code == 403
    assert ticket not in other_page.text
    for path in ("/swarm/status", f"/swarm/episodes/{episode}/trace", "/swarm/overview"):
        assert (await rig.ask("GET", path, ticket)).status_code == 401
        assert (await rig.ask("GET", path, params={"ticket": ticket})).status_code == 401
    own = f"/swarm/episodes/{episode}"
    assert (await rig.ask("POST", f"{own}/abort", ticket, json={})).status_code == 401
    # An episode's key is no ticket, and a ticket no key.
    call = {"messages": [{"role": "user", "content": "x"}]}
    assert (await rig.ask("POST", "/v1/chat/completions", ticket, json=call)).status_code == 401


async def test_the_page_needs_a_ticket_or_a_token_that_may_read_the_episode(rig):
    secret = await grant_of(rig, "eval", rig.tokens.eval, "judge")
    path = f"/swarm/episodes/{secret}/page"
    assert (await rig.ask("GET", path)).status_code == 401
    assert (await rig.ask("GET", path, rig.tokens.client)).status_code == 403
    assert (await rig.ask("GET", path, rig.tokens.eval)).status_code == 200
    assert (await rig.ask("GET", path, rig.tokens.admin)).status_code == 200
    ticket = f"/swarm/episodes/{secret}/ticket"
    assert (await rig.ask("POST", ticket, rig.tokens.client)).status_code == 403
    unknown = await rig.ask("GET", "/swarm/episodes/nobody/page", rig.tokens.admin)
    assert unknown.status_code == 404


@pytest.mark.parametrize("query", ["call=-1", "part=x", "first=-1", "valid_s=0", "valid_s=1e9"])
async def test_wrong_queries_are_refused(rig, query):
    episode = await grant_of(rig)
    verb, name = ("POST", "ticket") if "valid_s" in query else ("GET", "page")
    answer = await rig.ask(verb, f"/swarm/episodes/{episode}/{name}?{query}", rig.tokens.admin)
    assert answer.status_code == 400


async def test_the_address_is_the_one_that_was_dialled(rig):
    episode = await grant_of(rig)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(rig.app), base_url="http://tunnel.example:1234"
    ) as http:
        made = await http.post(
            f"/swarm/episodes/{episode}/ticket",
            headers={"authorization": f"Bearer {rig.tokens.admin}"},
        )
    assert made.json()["url"].startswith("http://tunnel.example:1234/swarm/episodes/")


async def test_pages_of_open_ended_and_forgotten_episodes_are_written(rig):
    grant = await rig.grant()
    episode = rig.service.episode_for_key(grant["api_key"])
    reply = await reply_to(
        rig.service, episode, ChatCall(messages=[{"role": "user", "content": "Compute 1+1."}])
    )
    path = f"/swarm/episodes/{grant['episode_id']}/page"
    still_open = (await rig.ask("GET", path, rig.tokens.admin)).text
    assert "undecided" in still_open
    assert "Compute 1+1." in still_open
    await rig.service.abort(grant["episode_id"], AbortRequest(reason="<i>why</i>"))
    ended = (await rig.ask("GET", path, rig.tokens.admin)).text
    assert "&lt;i&gt;why&lt;/i&gt;" in ended
    assert "its episode was aborted" in ended
    part = await rig.ask("GET", f"{path}?call=0&part=prompt", rig.tokens.admin)
    assert part.text.count("<td>user</td>") == len(
        rig.service._core.tokenizer.encode("Compute 1+1.")
    )
    assert reply.call_index == 0
    rig.service._core.book.forget_ended_before(99)  # as when its step is over: the journal has it
    assert (await rig.ask("GET", path, rig.tokens.admin)).text == ended


async def test_a_file_has_everything_and_no_links(rig):
    grant = await rig.grant()
    episode = rig.service.episode_for_key(grant["api_key"])
    for i in range(40):
        text = f"Compute {i}+{i} and say it again and again. " * 8
        await reply_to(rig.service, episode, ChatCall(messages=[{"role": "user", "content": text}]))
    path = f"/swarm/episodes/{grant['episode_id']}/page"
    page = (await rig.ask("GET", path, rig.tokens.admin)).text
    whole = (await rig.ask("GET", f"{path}?whole=true", rig.tokens.admin)).text
    assert page.count("<tr class") == TOKENS_A_PAGE
    assert "?call=" in page
    assert whole.count("<tr class") > TOKENS_A_PAGE
    assert "?call=" not in whole


async def test_a_page_of_an_older_run_reads_as_its_own_model_wrote(rig):
    grant = await rig.grant()
    await ask(rig.service, Grant.model_validate(grant))
    await rig.service.stop()
    other = {"engine": "toy", "model": {"path": "builtin:tiny-calc-qwen"}}
    put = await rig.ask("PUT", "/swarm/config", rig.tokens.admin, json=other)
    assert put.status_code == 200, put.text
    await rig.service.start()
    path = f"/swarm/episodes/{grant['episode_id']}/page?call=0&part=prompt"
    page = (await rig.ask("GET", path, rig.tokens.admin)).text
    tokens = rig.service.monitor.tokenizers.of_episode(grant["episode_id"])
    assert tokens is not rig.service._core.tokenizer
    assert "Compute" in page
