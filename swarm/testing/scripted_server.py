"""A socket that answers with bytes from a script: proxies' error pages, cut connections, whatever a real server never says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

PATIENCE_S = 5.0


def http_reply(status: str, body: bytes, *headers: str) -> bytes:
    """One HTTP answer that ends its connection; ``status`` as in ``"200 OK"``."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextmanager
def scripted_server(replies: list[bytes]) -> Generator[tuple[str, Callable[[], int]]]:
    """Answer one connection after another with these bytes (empty = cut it); yields the URL and a counter of requests."""
    served: list[int] = []

    def serve(listener: socket.socket) -> None:
        for reply in replies:
            try:
                connection, _ = listener.accept()
            except OSError:  # nobody came any more
                return
            with connection:
                connection.recv(65536)
                served.append(1)
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: len(served)
        # Wake a server that still waits for requests which the test did not make.
        if thread.is_alive():
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)
