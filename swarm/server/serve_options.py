"""What ``swarm serve`` was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swarm.protocol.config import TrainConfig


@dataclass(frozen=True)
class ServeOptions:
    """What ``swarm serve`` was asked for."""

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    """0 = any free port."""
    config: TrainConfig | None = None
    """Set before anything else; None = a client will ``PUT /swarm/config``."""
    start: bool = False
    """Boot the engine once listening."""
    resume: bool = False
    """Take up the run that the state directory's journal tells of."""
    ready_file: Path | None = None
    """Written atomically once listening: ``{"url", "port", "pid", "state_dir", "server_id"}``."""
    trust_proxy: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    """PEM files; with them the server speaks HTTPS only."""
    insecure_http: bool = False
    """Listen on (and announce over) a network without TLS."""
    registry: Path | None = None
    """Folder where ``swarm list`` finds this server; None = it is not entered."""
    announce: str | None = None
    """Address of a hub that lists this server."""
    announce_token_file: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variable -> value (empty when only the name is known), hidden in logs and traces."""
    announce_url: str | None = None
    """Where clients of the hub reach this server; None = where it listens."""

    @property
    def scheme(self) -> str:
        """``https`` with a certificate, else ``http``."""
        return "https" if self.tls_cert is not None else "http"
