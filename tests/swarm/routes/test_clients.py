"""Routes of clients: who is connected, cursors, and to whom an id belongs."""

from swarm.server.routes.app import create_app
from swarm.server.service.service import SwarmService
from swarm.testing import ToyFleet


async def register(rig, client_id, key, **more):
    body = {"client_id": client_id, **more}
    return await rig.ask("POST", "/swarm/clients", key, json=body)


async def test_clients_are_listed_with_their_figures(rig):
    await register(rig, "alice", rig.tokens.client, code_hash="abc")
    await register(rig, "bob", rig.tokens.eval, role="evaluator")
    await rig.grant(client_id="alice")
    listed = await rig.ask("GET", "/swarm/clients", rig.tokens.client)
    assert listed.status_code == 200, listed.text
    found = [(c["client_id"], c["role"], c["code_hash"], c["open"]) for c in listed.json()]
    assert found == [("alice", "trainer", "abc", 1), ("bob", "evaluator", "", 0)]
    assert (await rig.ask("GET", "/swarm/clients", rig.tokens.eval)).status_code == 403


async def test_clients_without_a_lease_are_listed_when_asked_for(rig):
    await rig.grant(client_id="passer-by")
    plain = (await rig.ask("GET", "/swarm/clients", rig.tokens.admin)).json()
    everyone = (await rig.ask("GET", "/swarm/clients?gone=true", rig.tokens.admin)).json()
    assert (plain, [c["client_id"] for c in everyone]) == ([], ["passer-by"])


async def test_a_cursor_is_kept_and_told_with_the_lease(rig):
    told = {"task_set": "math", "data_seed": 3, "position": 7, "step": 1}
    path = "/swarm/clients/alice/cursor"
    assert (await rig.ask("POST", path, rig.tokens.client, json=told)).status_code == 404
    await register(rig, "alice", rig.tokens.client)
    answer = await rig.ask("POST", path, rig.tokens.client, json=told)
    assert answer.json()["cursor"] == told
    assert (await register(rig, "alice", rig.tokens.client)).json()["cursors"] == [told]
    assert (await rig.ask("POST", path, rig.tokens.eval, json=told)).status_code == 403
    wrong = await rig.ask("POST", path, rig.tokens.client, json={"position": "x"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "bad_request")


async def test_a_replaced_client_is_told_so(rig):
    for instance in ("old", "new"):
        await register(rig, "alice", rig.tokens.client, instance=instance)
    body = {"client_id": "alice", "task_id": "t", "instance": "old"}
    refused = await rig.ask("POST", "/swarm/episodes", rig.tokens.client, json=body)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "client_replaced"
    assert refused.headers["x-should-retry"] == "false"


async def test_an_id_belongs_to_its_kind_of_token_also_after_a_restart(offline, tmp_path):
    tokens = offline.tokens
    assert (await register(offline, "judge", tokens.eval, role="evaluator")).status_code == 200
    await offline.service.close()
    service = await SwarmService.open(state_dir=tmp_path, engine_factory=ToyFleet(), tokens=tokens)
    again = type(offline)(service, offline.fleet, tokens, create_app(service, tokens))
    refused = await register(again, "judge", tokens.client)
    assert refused.status_code == 403
    assert "belongs to the 'eval' token" in refused.json()["error"]["message"]
    assert (await register(again, "judge", tokens.admin)).status_code == 200
    await service.close()
