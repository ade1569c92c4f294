"""Numbers, names and addresses at their edges: each is answered in words, none reaches the store or breaks a later request."""

import json
from urllib.parse import quote

import pytest
from pydantic import ValidationError

from swarm.protocol.config import TrainConfig

BEYOND = 2**63
"""One more than what SQLite keeps as an integer."""


@pytest.mark.parametrize("number", [BEYOND, -BEYOND - 1, 10**30])
@pytest.mark.parametrize("path", ["/swarm/metrics?after_step=", "/swarm/events?after_seq="])
async def test_a_position_that_no_record_can_have_is_a_wrong_request(rig, path, number):
    answer = await rig.ask("GET", f"{path}{number}", rig.tokens.admin)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("told", ["\u00b2", "9" * 5000, str(BEYOND)])
async def test_a_last_event_id_that_is_none_of_ours_is_a_wrong_request(rig, told):
    headers = {"last-event-id": told.encode("latin-1")}
    answer = await rig.ask("GET", "/swarm/events", rig.tokens.admin, headers=headers)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    "change", [{"planned": BEYOND}, {"completed": BEYOND}, {"planned": -1}, {"step": -1}]
)
async def test_an_eval_round_counts_from_nothing_to_what_can_be_kept(rig, change):
    body = {"step": 0, "planned": 1, "completed": 1} | change
    answer = await rig.ask("POST", "/swarm/evals", rig.tokens.eval, json=body)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    "change",
    [
        {"client_id": ""},
        {"client_id": "x" * 129},
        {"task_id": "t" * 5000},
        {"task_set": "s" * 129},
        {"idle_deadline_s": float("inf")},
    ],
)
async def test_a_grant_with_names_or_deadlines_beyond_measure_is_refused(rig, change):
    body = {"client_id": "c", "task_id": "t", "kind": "eval"} | change
    answer = await rig.ask("POST", "/swarm/episodes", rig.tokens.client, content=json.dumps(body))
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    "section",
    [
        {"batch": {"mix": {"a": float("nan")}}},
        {"optimizer": {"lr": float("inf")}},
        {"episode": {"idle_deadline_s": float("inf")}},
        {"engine_hang_s": float("inf")},
    ],
)
def test_a_configuration_holds_finite_numbers_only(section):
    # JSON cannot carry others, so a resumed server or a client could not read them back.
    with pytest.raises(ValidationError, match="finite"):
        TrainConfig.model_validate(section)


@pytest.mark.parametrize("client_id", ["team/alice", "a//b", "</script>", "x?y#z", "a\nb"])
async def test_a_client_with_any_name_keeps_its_lease_its_cursor_and_its_say(rig, client_id):
    path = f"/swarm/clients/{quote(client_id, safe='')}"
    client = rig.tokens.client
    await rig.ask("POST", "/swarm/clients", client, json={"client_id": client_id})
    beat = await rig.ask("POST", f"{path}/heartbeat", client)
    assert (beat.status_code, beat.json()["client_id"]) == (200, client_id)
    moved = await rig.ask("POST", f"{path}/cursor", client, json={"position": 3})
    assert moved.json()["cursor"]["position"] == 3
    # C2 asks nobody; that is said by the service, so the route was found.
    agreed = await rig.ask("POST", f"{path}/agree", client, json={"for_step": 0})
    assert (agreed.status_code, agreed.json()["error"]["code"]) == (409, "wrong_state")


async def test_a_task_set_with_a_slash_in_its_name_has_its_queue(rig):
    path = "/swarm/task_sets/math%2Feasy"
    put = await rig.ask("PUT", path, rig.tokens.client, json={"task_ids": ["a"]})
    assert put.json()["name"] == "math/easy"


@pytest.mark.parametrize("client_id", [" ", "a\nb", "\x1b[31m", " a"])
async def test_a_name_that_the_header_cannot_carry_does_not_take_the_controller_lease(
    rig, client_id
):
    # It could not be told from a request without a name, so its holder would lock itself out.
    answer = await rig.ask(
        "POST", "/swarm/controller", rig.tokens.admin, json={"client_id": client_id}
    )
    assert answer.status_code == 400, answer.text
    assert (await rig.ask("POST", "/swarm/engine/start", rig.tokens.admin)).status_code == 200


async def test_a_long_reason_of_an_abort_is_kept_short(rig):
    grant = await rig.grant()
    path = f"/swarm/episodes/{grant['episode_id']}/abort"
    answer = await rig.ask("POST", path, rig.tokens.client, json={"reason": "r" * 100_000})
    assert answer.json()["state"] == "aborted"
    assert len(answer.json()["reason"]) <= 2000
