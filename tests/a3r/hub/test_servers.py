"""Swarm servers that announce themselves to the hub."""

from typing import Any

import pytest

from a3r.hub.server_routes import MOST_SERVERS, TTL_S, AnnouncedServers
from swarm.protocol.servers import HUB_ROUTE, ServerList, ServerRecord
from swarm.protocol.states import EngineState

ID = "0123456789abcdef"


def a_record(server_id: str = ID, **values: Any) -> dict[str, Any]:
    record = ServerRecord(
        server_id=server_id,
        url="http://gpu7:8377",
        state=EngineState.OFFLINE,
        pid=7,
        version="0.1.0",
        waiting=True,
    )
    return record.model_dump(mode="json") | values


async def send(study: Any, method: str, path: str = "", body: Any = None, role: str = "worker"):
    headers = {"Authorization": f"Bearer {role}-token"}
    return await study.http.request(method, HUB_ROUTE + path, json=body, headers=headers)


async def names(study: Any, role: str = "admin") -> list[str]:
    reply = await send(study, "GET", role=role)
    return [s.server_id for s in ServerList.model_validate(reply.json()).servers]


async def test_a_server_is_listed_until_it_falls_silent_or_withdraws(study: Any) -> None:
    reply = await send(study, "PUT", f"/{ID}", a_record())
    assert reply.json() == {"ttl_s": TTL_S}
    await send(study, "PUT", "/" + "f" * 16, a_record("f" * 16))
    assert await names(study) == await names(study, "worker") == [ID, "f" * 16]
    study.clock.now += TTL_S - 1
    await send(study, "PUT", f"/{ID}", a_record(state="ROLLING", waiting=False))
    study.clock.now += 2
    (listed,) = (await send(study, "GET")).json()["servers"]
    assert (listed["server_id"], listed["state"], listed["age_s"]) == (ID, "ROLLING", 2.0)
    for _ in range(2):
        assert (await send(study, "DELETE", f"/{ID}")).json() == {"servers": []}


async def test_only_the_hubs_own_tokens_open_the_list(study: Any) -> None:
    for method, path in (("GET", ""), ("PUT", f"/{ID}"), ("DELETE", f"/{ID}")):
        reply = await send(study, method, path, a_record(), role="guess")
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, "auth_failed")
    assert await names(study) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/nothex", a_record()),
        (f"/{ID}", a_record("f" * 16)),
        (f"/{ID}", a_record(url="javascript:alert(1)")),
        (f"/{ID}", a_record(url="http://a b")),
        (f"/{ID}", a_record(state="DANCING")),
        (f"/{ID}", {"server_id": ID}),
    ],
)
async def test_a_record_that_makes_no_sense_is_refused(study: Any, path: str, body: Any) -> None:
    reply = await send(study, "PUT", path, body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "request_invalid")
    assert await names(study) == []


def test_the_hub_does_not_list_without_end(clock: Any) -> None:
    servers = AnnouncedServers(clock)
    for n in range(MOST_SERVERS):
        servers.put(ServerRecord.model_validate(a_record(f"{n:016x}")))
    servers.put(ServerRecord.model_validate(a_record(f"{0:016x}")))
    one_more = ServerRecord.model_validate(a_record(ID))
    with pytest.raises(Exception, match="1000 servers"):
        servers.put(one_more)
    clock.now += TTL_S + 1
    servers.put(one_more)
    assert [s.server_id for s in servers.listed()] == [ID]
