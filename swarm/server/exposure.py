"""Who may see what travels: a network without TLS is refused unless it is asked for, and certificates are checked at once."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

from swarm.protocol.errors import ConfigError


class SetupError(ConfigError):
    """The server cannot run with this port, address, certificate, state directory or configuration."""


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_bind(host: str, *, tls: bool, insecure_http: bool) -> bool:
    """Refuse to send tokens over a network in clear text; returns whether that was asked for nevertheless.

    Raises:
        SetupError: ``host`` is not loopback, there is no TLS, and ``insecure_http`` is not set.
    """
    if is_loopback(host) or tls:
        return False
    if not insecure_http:
        raise SetupError(
            f"On {host!r} without TLS, tokens and keys would travel in clear text.",
            hint="Give --tls-cert and --tls-key; or listen on 127.0.0.1 and come by `ssh -L`; or, on a network that you "
            "trust, add --insecure-http.",
        )
    return True


def check_tls(cert: Path | None, key: Path | None) -> bool:
    """Load the certificate and its key once, so that a wrong file is told before anything listens; returns whether there is one.

    Raises:
        SetupError: One is missing or unreadable, they do not belong together, or the key needs a password.
    """
    if cert is None and key is None:
        return False
    if cert is None or key is None:
        raise SetupError(
            "TLS takes a certificate and its key.",
            hint="Give both --tls-cert and --tls-key (PEM files).",
        )
    for path in (cert, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise SetupError(
                f"The file {str(path)!r} cannot be read: {error.strerror}.",
                hint="Check --tls-cert and --tls-key.",
            ) from error
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, _no_password)
    except (ssl.SSLError, ValueError) as error:
        raise SetupError(
            f"{str(cert)!r} and {str(key)!r} are not a certificate and its key: {error}.",
            hint="Both are PEM files, the key without a password; the certificate file may hold the chain.",
        ) from error
    return True


def _no_password() -> str:
    raise ValueError("the key is encrypted")
