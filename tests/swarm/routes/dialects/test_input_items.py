from __future__ import annotations

import pytest

from swarm.protocol.errors import RequestError
from swarm.server.routes.dialects.responses.listing import input_page

ITEMS = [
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "assistant", "content": "so"},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {"type": "reasoning", "id": "rs_7", "content": []},
]


def test_every_listed_item_has_a_type_an_id_a_status_and_text_in_parts() -> None:
    page = input_page("ep.1", ITEMS, {"order": "asc"})
    assert [item["type"] for item in page["data"]] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
    ]
    assert [item["id"] for item in page["data"]] == [
        "msg_ep.1_0",
        "msg_ep.1_1",
        "fc_ep.1_2",
        "out_ep.1_3",
        "rs_7",
    ]
    assert {item["status"] for item in page["data"]} == {"completed"}
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert page["data"][1]["content"][0]["type"] == "output_text"
    assert page["data"][4]["summary"] == []


def test_the_newest_item_comes_first_unless_asked_otherwise() -> None:
    newest = input_page("r", ITEMS, {})
    assert (newest["first_id"], newest["last_id"]) == ("rs_7", "msg_r_0")
    assert newest["has_more"] is False


def test_pages_follow_each_other_without_gap_or_overlap() -> None:
    seen: list[str] = []
    query = {"limit": "2", "order": "asc"}
    for more in (True, True, False):
        page = input_page("r", ITEMS, query)
        assert page["has_more"] is more
        seen += [item["id"] for item in page["data"]]
        query = {**query, "after": page["last_id"]}
    assert seen == [item["id"] for item in input_page("r", ITEMS, {"order": "asc"})["data"]]


@pytest.mark.parametrize(
    "query",
    [
        {"order": "up"},
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "x"},
        {"limit": "9" * 5000},
        {"limit": "²"},
        {"after": "nobody"},
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(query: dict[str, str]) -> None:
    with pytest.raises(RequestError) as caught:
        input_page("r", ITEMS, query)
    assert caught.value.details["parameter"] in query


def test_nothing_to_list_is_an_empty_page() -> None:
    page = input_page("r", [], {})
    assert (page["data"], page["first_id"], page["has_more"]) == ([], None, False)


async def test_input_items_are_listed_over_http_with_those_of_the_response_before(rig) -> None:
    key = (await rig.grant(kind="eval"))["api_key"]
    first = (await rig.ask("POST", "/v1/responses", key, json={"input": "hi"})).json()
    body = {"input": "more", "previous_response_id": first["id"]}
    second = (await rig.ask("POST", "/v1/responses", key, json=body)).json()
    path = f"/v1/responses/{second['id']}/input_items"
    page = (await rig.ask("GET", path, key, params={"order": "asc"})).json()
    assert [item["role"] for item in page["data"]] == ["user", "assistant", "user"]


async def test_a_model_has_what_the_anthropic_sdk_insists_on(rig) -> None:
    key = (await rig.grant(kind="eval"))["api_key"]
    model = (await rig.ask("GET", "/v1/models", key)).json()["data"][0]
    assert {model["type"], model["lifecycle"], model["object"]} == {"model", "active"}
