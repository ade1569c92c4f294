"""An OpenAI-compatible HTTP server whose model is a script. Real sockets, no streaming, no key is checked or kept."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

from pydantic import ValidationError

from a3r.core.llm import ModelMessage, ModelRequest, ToolCall, ToolSpec
from a3r.testing.scripted_model import tokens
from a3r.testing.stand_in.script import Answer, Script

Json = dict[str, Any]
POLL_S = 0.02
"""How often the serving thread looks whether it is over."""
PATHS = ("/v1/chat/completions", "/chat/completions")


class StandIn:
    """A context manager: serves on a free port of the loopback from entry to exit. ``asked`` holds every request in order."""

    def __init__(self, script: Script, *, port: int = 0) -> None:
        """``port`` 0: any free one."""
        self.script = script
        self.asked: list[ModelRequest] = []
        self.over = threading.Event()
        """Set at the end: answers that are being delayed are given up."""
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stand_in = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="stand-in"
        )

    @property
    def url(self) -> str:
        """What a provider's base URL would be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def serve_forever(self) -> None:
        """Serve in this thread until it is interrupted."""
        self._server.serve_forever(POLL_S)

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stand_in: StandIn


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        known = self.path in ("/v1/models", "/models")
        self._send(200 if known else 404, {"object": "list", "data": [{"id": "stand-in"}]}, {})

    def do_POST(self) -> None:
        stand_in = cast("_Server", self.server).stand_in
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path not in PATHS:
            self._send(404, _error(404, f"there is no {self.path}"), {})
            return
        try:
            body: Json = json.loads(raw)
            request = read_request(body)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            self._send(400, _error(400, f"no chat completion request: {error}"), {})
            return
        stand_in.asked.append(request)
        answer = stand_in.script(request)
        if answer.delay_s and stand_in.over.wait(answer.delay_s):
            self.close_connection = True
            return
        self._answer(answer, request, str(body.get("model", "")))

    def _answer(self, answer: Answer, request: ModelRequest, model: str) -> None:
        if answer.status == 0:  # hang up
            self.close_connection = True
            return
        if answer.status == 200:
            self._send(200, completion(answer, request, model), {})
            return
        headers: dict[str, str] = {}
        if answer.retry_after_s is not None:
            headers["Retry-After"] = f"{answer.retry_after_s:g}"
        self._send(answer.status, _error(answer.status, answer.error), headers)

    def _send(self, status: int, body: Json, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: the requests are in ``asked``."""


def read_request(body: Json) -> ModelRequest:
    """An OpenAI request body as the leader's own type.

    Raises:
        ValueError, KeyError, TypeError, ValidationError: it is none.
    """
    if body.get("stream"):
        msg = "this stand-in does not stream"
        raise ValueError(msg)
    response_format: Json = body.get("response_format") or {}
    form: Json = response_format.get("json_schema") or {}
    return ModelRequest(
        messages=tuple(_message(message) for message in body["messages"]),
        tools=tuple(ToolSpec.model_validate(tool["function"]) for tool in body.get("tools") or ()),
        json_schema=form.get("schema"),
        max_tokens=body.get("max_tokens") or body.get("max_completion_tokens") or 4096,
        temperature=body.get("temperature"),
    )


def completion(answer: Answer, request: ModelRequest, model: str) -> Json:
    """The answer as an OpenAI ``chat.completion`` body."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in answer.tool_calls
    ]
    message: Json = {"role": "assistant", "content": answer.text or None}
    if calls:
        message["tool_calls"] = calls
    prompt = tokens(request.model_dump_json())
    written = min(request.max_tokens, tokens(f"{answer.text}{calls or ''}"))
    finish = answer.finish_reason or ("tool_calls" if calls else "stop")
    return {
        "id": "chatcmpl-stand-in",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
        },
    }


def _message(message: Json) -> ModelMessage:
    calls: list[Json] = message.get("tool_calls") or []
    return ModelMessage(
        role=message["role"],
        content=message.get("content") or "",
        tool_calls=tuple(
            ToolCall(
                id=call["id"],
                name=call["function"]["name"],
                arguments=call["function"]["arguments"],
            )
            for call in calls
        ),
        tool_call_id=message.get("tool_call_id") or "",
    )


def _error(status: int, message: str) -> Json:
    words = message or f"the script answers with status {status}"
    code = "insufficient_quota" if status == 402 else str(status)
    return {"error": {"message": words, "type": "stand_in", "code": code, "param": None}}
