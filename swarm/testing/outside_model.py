"""A model that somebody else serves: an OpenAI-compatible server on a real port that answers from a script and remembers who asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 1000, "completion_tokens": 10}
DONE = "stop"


@dataclass
class OutsideModel:
    """Answers ``text``; ``refusals`` are (status, body) given first, one a request."""

    text: str = "ok"
    usage: dict[str, Any] | None = field(default_factory=lambda: dict(USAGE))
    """None = answers do not say what they used."""
    refusals: list[tuple[int, dict[str, Any]]] = field(default_factory=list[Any])
    down: bool = False
    """True: every request is answered 503."""
    requests: list[dict[str, Any]] = field(default_factory=list[Any])
    """``{"path", "headers", "body"}`` of each request, in order."""
    base_url: str = ""

    def reply(self) -> tuple[int, dict[str, Any]]:
        """Status and body for the next request."""
        if self.refusals:
            return self.refusals.pop(0)
        if self.down:
            return 503, {"error": {"message": "overloaded", "type": "server_error"}}
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": message, "finish_reason": DONE}
        body = {"id": "r", "object": "chat.completion", "created": 0, "model": "outside"}
        return 200, {**body, "choices": [choice]} | ({"usage": self.usage} if self.usage else {})


@contextmanager
def outside_model(**settings: Any) -> Generator[OutsideModel]:
    """Serve until the block ends; ``base_url`` ends with ``/v1``."""
    model = OutsideModel(**settings)
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(model)) as server:
        model.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join(5)


def _handler(model: OutsideModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(raw)
            headers = {k.lower(): v for k, v in self.headers.items()}
            model.requests.append({"path": self.path, "headers": headers, "body": body})
            status, answer = model.reply()
            if status == 200 and body.get("stream"):
                self._send(status, _events(answer, body), "text/event-stream")
            else:
                self._send(status, json.dumps(answer).encode(), "application/json")

        def _send(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Nothing on stderr."""

    return Handler


def _events(answer: dict[str, Any], asked: dict[str, Any]) -> bytes:
    """The answer as server-sent events, a word each; usage at the end when it was asked for."""
    message = answer["choices"][0]["message"]
    common = {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "outside"}
    pieces = [{"role": "assistant", "content": w} for w in message["content"].split(" ")]
    chunks = [{"index": 0, "delta": p, "finish_reason": None} for p in pieces]
    chunks.append({"index": 0, "delta": {}, "finish_reason": DONE})
    events: list[dict[str, Any]] = [{**common, "choices": [c]} for c in chunks]
    if (asked.get("stream_options") or {}).get("include_usage") and "usage" in answer:
        events.append({**common, "choices": [], "usage": answer["usage"]})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()
