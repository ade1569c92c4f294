import asyncio

import pytest

from swarm.protocol.config import TrainConfig
from swarm.testing import retry_until
from swarm.testing.engines import engine_name


async def test_health_needs_no_token_and_tells_no_more_than_that(offline):
    answer = await offline.ask("GET", "/health")
    assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/swarm/status"), ("PUT", "/swarm/config"), ("POST", "/swarm/engine/start"), ("POST", "/swarm/engine/stop"),
        ("POST", "/swarm/clients"), ("POST", "/swarm/clients/c/heartbeat"), ("POST", "/swarm/episodes"),
        ("POST", "/swarm/episodes/e/finish"), ("POST", "/swarm/episodes/e/abort"), ("GET", "/swarm/episodes/e"),
        ("GET", "/swarm/episodes/e/trace"), ("GET", "/swarm/pool"), ("GET", "/swarm/metrics"), ("GET", "/swarm/events"),
        ("GET", "/swarm/checkpoints"), ("POST", "/swarm/checkpoints"), ("POST", "/swarm/evals"), ("GET", "/metrics"),
        ("GET", "/swarm/config/changes"), ("POST", "/swarm/controller"),
        ("GET", "/v1/models"), ("POST", "/v1/chat/completions"),
    ],
)  # fmt: skip
async def test_every_other_route_answers_401_without_a_key_and_with_a_wrong_one(
    offline, method, path
):
    for key in ("", "wrong"):
        answer = await offline.ask(method, path, key)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "auth_failed"
        assert answer.headers["x-should-retry"] == "false"
        assert answer.json()["error"]["hint"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/swarm/config"), ("POST", "/swarm/engine/start"), ("POST", "/swarm/engine/stop"),
     ("GET", "/swarm/events"), ("GET", "/swarm/checkpoints"), ("POST", "/swarm/checkpoints"),
     ("POST", "/swarm/controller")],
)  # fmt: skip
async def test_only_the_admin_token_operates_the_server(offline, method, path):
    for key in (offline.tokens.client, offline.tokens.eval):
        answer = await offline.ask(method, path, key)
        assert answer.status_code == 403
        assert "admin" in answer.json()["error"]["hint"]


async def test_a_configuration_is_set_and_its_errors_are_named(offline):
    admin = offline.tokens.admin
    wrong = await offline.ask("PUT", "/swarm/config", admin, json={"batch": {"task": 2}})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["code"] == "config_invalid"
    assert "'tasks'" in wrong.json()["error"]["hint"]
    right = await offline.ask(
        "PUT", "/swarm/config", admin, content=TrainConfig(engine="toy").model_dump_json()
    )
    assert right.status_code == 200
    assert isinstance(right.json(), list)


async def test_the_engine_starts_and_stops_and_a_configuration_then_is_a_conflict(offline):
    admin = offline.tokens.admin
    await offline.ask("PUT", "/swarm/config", admin, json={"engine": "toy"})
    assert (await offline.ask("POST", "/swarm/engine/start", admin)).json()["state"] == "ROLLING"
    conflict = await offline.ask("PUT", "/swarm/config", admin, json={"engine": "toy", "seed": 5})
    assert conflict.status_code == 409
    assert (await offline.ask("POST", "/swarm/engine/stop", admin)).json()["state"] == "OFFLINE"


@pytest.mark.every_engine
async def test_a_dry_run_of_a_configuration_is_no_conflict(rig):
    admin = rig.tokens.admin
    body = (await rig.ask("GET", "/swarm/config", admin)).json() | {"seed": 5}
    shown = await rig.ask("PUT", "/swarm/config?dry_run=true", admin, json=body)
    assert shown.json() == [{"key": "seed", "old": 0, "new": 5, "effect": "run"}]
    assert (await rig.ask("GET", "/swarm/config", admin)).json()["seed"] == 0
    body = body | {"seed": 0, "stop_at_step": 5}
    await rig.ask("PUT", "/swarm/config", admin, json=body, headers={"X-Swarm-Client": "a%2Fb"})
    await rig.ask("PUT", "/swarm/config", admin, json=body | {"stop_at_step": 6})
    changes = (await rig.ask("GET", "/swarm/config/changes", rig.tokens.eval)).json()
    assert [c["who"] for c in changes] == ["a/b", "admin"]


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("sent", "who"),
    [
        ("ann", "ann"),
        ("", "admin"),
        ("%00evil", "admin"),
        ("a%0Aevil", "admin"),
        ("x" * 999, "x" * 128),
    ],
)
async def test_who_asks_is_a_printable_name_of_bounded_length(rig, sent, who):
    body = TrainConfig(engine=engine_name(), batch={"tasks": 2, "repeat": 2}, stop_at_step=7)
    await rig.ask(
        "PUT",
        "/swarm/config",
        rig.tokens.admin,
        content=body.model_dump_json(),
        headers={"X-Swarm-Client": sent},
    )
    (change,) = (await rig.ask("GET", "/swarm/config/changes", rig.tokens.admin)).json()
    assert change["who"] == who


@pytest.mark.every_engine
async def test_a_controller_lease_that_another_client_holds_is_a_conflict(rig):
    admin = rig.tokens.admin
    for name, status in (("ann", 200), ("bob", 409), ("ann", 200)):
        answer = await rig.ask("POST", "/swarm/controller", admin, json={"client_id": name})
        assert answer.status_code == status
    refused = await rig.ask("POST", "/swarm/engine/stop", admin)
    assert (refused.status_code, refused.json()["error"]["details"]) == (409, {"controller": "ann"})
    stop = await rig.ask("POST", "/swarm/engine/stop", admin, headers={"X-Swarm-Client": "ann"})
    assert stop.json()["controller"] == "ann"


@pytest.mark.every_engine
async def test_status_waits_for_a_step_no_longer_than_asked(rig):
    answer = await rig.ask("GET", "/swarm/status?after_step=0&wait_s=0.05", rig.tokens.client)
    assert answer.json()["step"] == 0
    assert answer.json()["state"] == "ROLLING"
    wrong = await rig.ask("GET", "/swarm/status?after_step=x", rig.tokens.client)
    assert wrong.status_code == 400
    assert "after_step" in wrong.json()["error"]["message"]


@pytest.mark.every_engine
async def test_a_client_registers_and_renews_its_lease(rig):
    key = rig.tokens.client
    lease = (await rig.ask("POST", "/swarm/clients", key, json={"client_id": "c1"})).json()
    assert lease["client_id"] == "c1"
    assert lease["lease_s"] > 0
    assert (await rig.ask("POST", "/swarm/clients/c1/heartbeat", key)).status_code == 200
    assert (await rig.ask("POST", "/swarm/clients/c2/heartbeat", key)).status_code == 404


@pytest.mark.every_engine
async def test_a_grant_names_the_address_that_the_client_dialled(rig):
    grant = await rig.grant(
        headers={"host": "tunnel.example:99", "x-forwarded-host": "evil.example"}
    )
    assert grant["outcome"] == "granted"
    assert grant["base_url"] == "http://tunnel.example:99/v1"


@pytest.mark.every_engine
async def test_a_finish_is_answered_twice_alike(rig):
    grant = await rig.grant()
    path = f"/swarm/episodes/{grant['episode_id']}/finish"
    first = await rig.ask("POST", path, rig.tokens.client, json={"reward": 1})
    again = await rig.ask("POST", path, rig.tokens.client, json={"reward": 0})
    assert first.json()["accepted"] is True
    assert again.json() == first.json()
    trace = await rig.ask("GET", path.removesuffix("/finish"), rig.tokens.client)
    assert trace.json()["reward"] == 1


@pytest.mark.every_engine
@pytest.mark.parametrize(
    "body", ['{"reward": NaN}', '{"reward": "NaN"}', '{"reward": Infinity}', '{"reward": 1e999}', "{}",
             '{"reward": 1, "metrics": {"m": NaN}}'],
)  # fmt: skip
async def test_a_reward_that_is_not_a_finite_number_is_422_and_the_episode_stays_open(rig, body):
    grant = await rig.grant()
    path = f"/swarm/episodes/{grant['episode_id']}"
    answer = await rig.ask("POST", f"{path}/finish", rig.tokens.client, content=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "reward_not_finite"
    assert (await rig.ask("GET", path, rig.tokens.client)).json()["state"] == "open"


@pytest.mark.every_engine
async def test_an_unknown_episode_is_404(rig):
    for path in ("", "/trace"):
        assert (
            await rig.ask("GET", f"/swarm/episodes/nope{path}", rig.tokens.client)
        ).status_code == 404
    answer = await rig.ask(
        "POST", "/swarm/episodes/nope/finish", rig.tokens.admin, json={"reward": 1}
    )
    assert answer.status_code == 404


@pytest.mark.every_engine
async def test_the_eval_token_cannot_train(rig):
    body = {"client_id": "ev", "kind": "train", "task_id": "t"}
    refused = await rig.ask("POST", "/swarm/episodes", rig.tokens.eval, json=body)
    assert refused.status_code == 403
    train = await rig.grant()
    for path in ("/finish", "/abort"):
        answer = await rig.ask(
            "POST",
            f"/swarm/episodes/{train['episode_id']}{path}",
            rig.tokens.eval,
            json={"reward": 1},
        )
        assert answer.status_code == 403
    assert (await rig.ask("GET", "/swarm/pool", rig.tokens.eval)).status_code == 403
    assert (await rig.grant("eval", rig.tokens.eval, "ev"))["outcome"] == "granted"


@pytest.mark.every_engine
async def test_a_client_cannot_touch_or_read_the_evaluators_episodes(rig):
    registered = await rig.ask(
        "POST", "/swarm/clients", rig.tokens.eval, json={"client_id": "ev", "role": "evaluator"}
    )
    assert registered.status_code == 200
    grant = await rig.grant("eval", rig.tokens.eval, "ev")
    path = f"/swarm/episodes/{grant['episode_id']}"
    for method, suffix in (("GET", ""), ("GET", "/trace"), ("POST", "/finish"), ("POST", "/abort")):
        assert (await rig.ask(method, path + suffix, rig.tokens.client)).status_code == 403
    again = await rig.ask("POST", "/swarm/clients", rig.tokens.client, json={"client_id": "ev"})
    assert again.status_code == 403
    finished = await rig.ask("POST", f"{path}/finish", rig.tokens.eval, json={"reward": 0.5})
    assert finished.json()["accepted"] is True


@pytest.mark.every_engine
async def test_the_evaluator_reads_and_closes_a_round(rig):
    own = await rig.grant("eval", rig.tokens.client)
    trace = await rig.ask("GET", f"/swarm/episodes/{own['episode_id']}/trace", rig.tokens.eval)
    assert trace.json()["kind"] == "eval"
    closing = {"step": 0, "planned": 1, "completed": 1}
    assert (await rig.ask("POST", "/swarm/evals", rig.tokens.eval, json=closing)).status_code == 200
    assert (
        await rig.ask("POST", "/swarm/evals", rig.tokens.client, json=closing)
    ).status_code == 403


@pytest.mark.every_engine
async def test_the_pool_metrics_and_gauges_are_read(rig):
    await rig.grant()
    pool = (await rig.ask("GET", "/swarm/pool", rig.tokens.client)).json()
    assert (pool["tasks_target"], pool["repeat"], pool["episodes_open"]) == (2, 2, 1)
    assert (await rig.ask("GET", "/swarm/metrics?after_step=0", rig.tokens.client)).json() == []
    gauges = (await rig.ask("GET", "/metrics", rig.tokens.client)).text
    assert 'swarm_open_episodes{kind="train"} 1.0\n' in gauges
    assert 'swarm_engine_state{state="ROLLING"} 1.0\n' in gauges


@pytest.mark.every_engine
async def test_a_checkpoint_is_saved_and_listed(rig):
    saved = await rig.ask("POST", "/swarm/checkpoints", rig.tokens.admin)
    assert saved.status_code == 200, saved.text
    listed = (await rig.ask("GET", "/swarm/checkpoints", rig.tokens.admin)).json()
    assert saved.json() in listed


async def test_an_unknown_route_and_a_wrong_method_get_the_envelope_without_the_key(rig):
    lost = await rig.ask("GET", "/e/sk-swarm-secret/v1/nothing")
    assert lost.status_code == 404
    assert "secret" not in lost.text
    wrong = await rig.ask("DELETE", "/swarm/status", rig.tokens.admin)
    assert wrong.status_code == 405
    assert wrong.json()["error"]["hint"]
    assert wrong.headers["x-should-retry"] == "false"


async def test_a_body_that_is_not_json_is_400_and_one_too_large_413(rig):
    broken = await rig.ask("POST", "/swarm/episodes", rig.tokens.client, content=b"{")
    assert broken.status_code == 400
    assert "not JSON" in broken.json()["error"]["message"]
    large = await rig.ask(
        "POST", "/swarm/episodes", rig.tokens.client, content=b"x" * (64 * 1024 * 1024 + 1)
    )
    assert large.status_code == 413
    assert "larger than" in large.json()["error"]["message"]


async def test_the_openapi_document_lists_every_route_with_a_title_and_a_known_schema(offline):
    document = (await offline.ask("GET", "/openapi.json")).json()
    listed = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    served = {
        (method, route.path_format)
        for route in _flat(offline.app.routes)
        for method in (route.methods or ()) - {"HEAD"}
        if route.path != "/openapi.json"
    }
    assert listed == served
    assert all(
        op["summary"] and op["description"]
        for item in document["paths"].values()
        for op in item.values()
    )
    assert set(_references(document)) <= {
        f"#/components/schemas/{name}" for name in document["components"]["schemas"]
    }


def _flat(routes):
    for route in routes:
        inner = getattr(route, "effective_route_contexts", None)
        yield from inner() if inner else [route]


def _references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


@pytest.mark.every_engine
async def test_events_arrive_as_they_happen(live):
    async with (
        live.client(live.tokens.admin) as http,
        http.stream("GET", "/swarm/events?after_seq=0") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        first = [await anext(lines) for _ in range(3)]
        assert first[0].startswith("id: 1")
        assert first[1].startswith("event: ")
        assert first[2].startswith('data: {"seq":1')


@pytest.mark.every_engine
async def test_a_held_grant_is_given_up_when_its_asker_leaves(live):
    for task in "ab":
        for _ in range(2):
            body = {"client_id": "c1", "task_id": task}
            await live.ask("POST", "/swarm/episodes", live.tokens.client, json=body)
    held = asyncio.create_task(
        live.ask(
            "POST",
            "/swarm/episodes",
            live.tokens.client,
            json={"client_id": "c2", "task_id": "x", "wait_s": 30},
            timeout=40,
        )
    )
    await retry_until(lambda: "1 requests held" in live.service.status().waiting_for)
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    await retry_until(lambda: "0 requests held" in live.service.status().waiting_for)
    assert live.service.status().open_episodes == 4
