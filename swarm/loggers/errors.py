"""What can go wrong between a server's metrics and a logger."""

from __future__ import annotations

from swarm.protocol.errors import SwarmError


class LoggerFailed(SwarmError):
    """The logger's library or its service refused."""

    code = "logger_failed"
