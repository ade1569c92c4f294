"""Addresses of a hub as a person gives them: what is none, and what would send a token in clear text over a network."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

UNIX = "unix:"
"""Begins the path of a socket that leads to the hub."""


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an IP address, IPv6 without brackets) is this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def trouble_with(url: str, *, here: bool = True) -> tuple[str, str] | None:
    """(what is wrong, what to do) of a hub's URL; None = it can be dialled.

    ``here``: whoever dials is on this machine, so that loopback and Unix sockets mean something.
    """
    if url.startswith(UNIX):
        fine = here and url.removeprefix(UNIX).startswith("/")
        return None if fine else ("it is no socket's path", f"As {UNIX}/folder/hub.sock")
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        parts, named = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not named:
        return "it is no address of a hub", "As https://hub.example.org:8443"
    if "@" in parts.netloc or parts.query or parts.fragment:
        return "it holds more than a host and a port", "Tokens come from --token-file"
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return (
            "over http:// the worker's token would travel in clear text",
            "https:// (workers_tls_cert and workers_tls_key of the daemon), or an SSH tunnel, which `a3r host add` makes",
        )
    return None
