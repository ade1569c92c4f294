"""Whoever holds a token and sends nonsense gets a refusal: no request makes the hub fail."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.a3r.hub.conftest import TOKENS, Study

HUGE = 10**30
VALUES: tuple[Any, ...] = (
    *("", "\x00", "a\x00b", "\ud800", "\u202e", "../../etc/passwd", "%00", "x" * 5000, "é", "0"),
    *(0, -1, HUGE, -HUGE, 2**63, 2**64, 1.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *(None, True, [], {}, [[]], {"": ""}, {"\x00": "\ud800"}, [None], ["\ud800"], {"a": HUGE}),
    *({"seq": HUGE}, [{"step": HUGE}], [{"step": float("nan")}], [{"step": "1"}], [{}]),
)
ROUNDS = 8
"""Bodies of one route, each with some fields made hostile."""
SKIPPED = {"/api/v1/shutdown", "/health"}


class Shapes:
    """Bodies and paths by the hub's own description of itself."""

    def __init__(self, schema: dict[str, Any], known: dict[str, Any], seed: int) -> None:
        self.schema, self.known, self.random = schema, known, random.Random(seed)

    def value(self, shape: dict[str, Any], name: str = "") -> Any:
        """Something that fits."""
        if "$ref" in shape:
            shape = self.schema["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
        if name in self.known:
            return self.known[name]
        if "anyOf" in shape:
            return self.value(shape["anyOf"][0], name)
        if "enum" in shape:
            return self.random.choice(shape["enum"])
        if "const" in shape:
            return shape["const"]
        match shape.get("type"):
            case "object":
                inner = shape.get("properties", {})
                return {key: self.value(part, key) for key, part in inner.items()}
            case "array":
                return [self.value(shape.get("items", {}), name)]
            case "integer":
                return max(1, int(shape.get("minimum", 1)))
            case "number":
                return 1.0
            case "boolean":
                return True
            case _:
                return "a" * max(1, int(shape.get("minLength", 1)))

    def spoilt(self, value: Any) -> Any:
        """``value`` with one of its parts, at any depth, replaced."""
        places = list(_places(value))
        if not places:
            return deepcopy(self.random.choice(VALUES))
        holder, key = self.random.choice(places)
        holder[key] = deepcopy(self.random.choice(VALUES))
        return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def requests(schema: dict[str, Any], known: dict[str, Any], seed: int) -> Iterator[tuple[Any, ...]]:
    """(method, path, query, body as bytes or None)."""
    shapes = Shapes(schema, known, seed)
    texts = [v for v in VALUES if isinstance(v, str) and v and "\ud800" not in v]
    for path, methods in schema["paths"].items():
        for method, told in methods.items():
            if path in SKIPPED:
                continue
            for number in range(ROUNDS):
                at, query = path, dict[str, Any]()
                for parameter in told.get("parameters", []):
                    name = parameter["name"]
                    odd = shapes.random.random() < 0.3
                    given = shapes.random.choice(texts) if odd else known.get(name, "a")
                    if parameter["in"] == "path":
                        at = at.replace(f"{{{name}}}", _escaped(str(given)))
                        at = at.replace(f"{{{name}:path}}", _escaped(str(given)))
                    elif shapes.random.random() < 0.7:
                        query[name] = shapes.random.choice((*texts, -1, HUGE, 1, "nan", "1e999"))
                body = None
                if "requestBody" in told:
                    shape = told["requestBody"]["content"]["application/json"]["schema"]
                    body = shapes.value(shape)
                    for _ in range(number % 3):
                        body = shapes.spoilt(body)
                    body = _without_waiting(body)
                yield method.upper(), at, query, None if body is None else json.dumps(body)


def _without_waiting(body: Any) -> Any:
    if isinstance(body, dict) and isinstance(body.get("wait_s"), int | float):
        body["wait_s"] = min(body["wait_s"], 0) if body["wait_s"] == body["wait_s"] else 0
    return body


def _escaped(text: str) -> str:
    return quote(text, safe="")


async def known_of(study: Study) -> dict[str, Any]:
    spec = await study.claimed()
    blueprint = study.store.blueprints(study.campaign_id)[0]
    return {
        "attempt_id": spec.attempt_id,
        "fencing_token": spec.fencing_token,
        "worker_id": "w1",
        "run_id": spec.run_id,
        "reference": study.campaign_id,
        "content_hash": blueprint.content_hash,
        "protocol": 1,
        "wait_s": 0,
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(2))
async def test_no_request_makes_the_hub_fail(study, seed):
    known = await known_of(study)
    schema = (await study.http.get("/openapi.json")).json()
    told: list[str] = []
    for method, path, query, body in requests(schema, known, seed):
        token = TOKENS.worker if path.startswith("/worker") else TOKENS.admin
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        answer = await study.http.request(
            method, path, params={**query, "wait_s": 0}, content=body, headers=headers
        )
        if answer.status_code >= 500:
            told.append(f"{method} {path} {query} {body and body[:300]} -> {answer.text[:200]}")
    assert not told, "\n".join(told)
    await still_reads(study)


async def still_reads(study: Study) -> None:
    """What is stored can still be shown."""
    campaign = f"campaigns/{study.campaign_id}"
    paths = [campaign, f"{campaign}/events?limit=5000", f"{campaign}/runs", "daemon"]
    paths += [f"runs/{run.id}" for run in study.runs()]
    for path in paths:
        answer = await study.api("GET", path)
        assert answer.status_code == 200, f"{path}: {answer.text}"


@pytest.mark.parametrize("text", ["\ud800", "\x00", "\u202e", "\x1b[2J", "x" * 100_000])
async def test_what_a_worker_tells_in_odd_characters_can_be_shown(study, text):
    spec = await study.claimed()
    token = {"fencing_token": spec.fencing_token}
    event = {"seq": 1, "at": 1.0, "actor": text, "kind": text, "data": {"what": text, text: text}}
    deviation = {**event, "seq": 2, "actor": "w", "kind": "deviation"}
    worker = {"worker_id": "w1", "host": "h", "pid": 1, "slots": 1, "inventory": {text: [text]}}
    ending = {"outcome": "failed", "failure": "client_crash", "reason": text}
    told = [
        await sent(study, f"attempts/{spec.attempt_id}/{what}", {**token, **body})
        for what, body in (
            ("events", {"events": [event]}),
            ("events", {"events": [deviation]}),
            ("steps", {"steps": [{"step": 1, "x": text}]}),
            ("finish", ending),
        )
    ]
    told += [await sent(study, "register", {**worker, **more}) for more in ({"host": text}, {})]
    assert all(answer.status_code < 500 for answer in told), [a.text for a in told]
    await still_reads(study)


async def sent(study: Study, path: str, body: dict[str, Any]) -> httpx.Response:
    # json.dumps escapes what UTF-8 has no bytes for
    headers = {"Authorization": f"Bearer {TOKENS.worker}", "Content-Type": "application/json"}
    return await study.http.post(f"/worker/v1/{path}", content=json.dumps(body), headers=headers)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"worker_id": ' * 20_000, b"nul", b'"\\ud800"'],
    ids=["nothing", "torn", "bytes", "brackets", "objects", "word", "surrogate"],
)
async def test_bodies_that_are_no_json_are_refused(study, body):
    headers = {"Authorization": f"Bearer {TOKENS.worker}", "Content-Type": "application/json"}
    answer = await study.http.post("/worker/v1/claim", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["code"]
