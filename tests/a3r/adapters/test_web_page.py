"""Pages over real HTTP on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from a3r.adapters.web_page import MOST_BYTES, read_page
from a3r.core.errors import A3RError

HTML = """<html><head><title>no</title><style>p {}</style></head><body><h1>Train  it</h1>
<script>alert("no")</script><p>Reward &amp;
group</p><pre>for x in y:
    go(x)</pre></body></html>"""
PAGES = {
    "/page": ("text/html; charset=utf-8", HTML.encode()),
    "/plain": ("text/plain; charset=latin-1", "für <b>alle</b>".encode("latin-1")),
    "/odd": ("text/plain; charset=no-such", "für".encode()),
    "/long": ("text/plain", b"x" * (MOST_BYTES + 10)),
    "/image": ("image/png", b"\x89PNG"),
}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, body = PAGES.get(self.path, ("", b""))
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "file:///etc/hostname")
        else:
            self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_of_html_the_text_is_kept_that_a_reader_sees(site):
    text = read_page(f"{site}/page")
    assert "Train it" in text
    assert "Reward & group" in text
    assert "for x in y:\n    go(x)" in text
    assert "alert" not in text
    assert "p {}" not in text


def test_other_text_is_kept_as_it_is_and_bounded(site):
    assert read_page(f"{site}/plain") == "für <b>alle</b>"
    assert read_page(f"{site}/odd") == "für"
    assert len(read_page(f"{site}/long")) == MOST_BYTES


@pytest.mark.parametrize("path", ["/none", "/image", "/away"])
def test_what_is_no_page_of_text_is_an_error_with_a_hint(site, path):
    with pytest.raises(A3RError) as caught:
        read_page(f"{site}{path}")
    assert caught.value.hint


@pytest.mark.parametrize(
    "address", ["file:///etc/hostname", "ftp://example.org/x", "http://", "http://[", "x"]
)
def test_only_http_addresses_are_read(address):
    with pytest.raises(A3RError):
        read_page(address)
