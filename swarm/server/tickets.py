"""Tickets that open the page of one episode for a short while, so that a browser needs no token."""

from __future__ import annotations

from itsdangerous import BadData, URLSafeSerializer

from swarm.protocol.errors import AuthError, Forbidden

TICKET_S = 900.0
"""How long a ticket opens its page, unless asked otherwise."""
LONGEST_S = 86_400.0
_SALT = "swarm.page-ticket.v1"


class PageTickets:
    """Signs and checks tickets with the state folder's signing secret (under a salt of their own)."""

    def __init__(self, signing: str) -> None:
        """``signing`` is the secret of ``Tokens.signing``."""
        self._serializer = URLSafeSerializer(signing, salt=_SALT)

    def issue(self, episode_id: str, expires_at: float) -> str:
        """Return a ticket for one episode's page until ``expires_at`` (unix seconds)."""
        return str(self._serializer.dumps({"e": episode_id, "x": expires_at}))

    def check(self, ticket: str, episode_id: str, now: float) -> None:
        """Return when ``ticket`` opens the page of ``episode_id`` at ``now`` (unix seconds).

        Raises:
            AuthError: It is of another server, changed, or expired. Its text does not quote the ticket.
            Forbidden: It is for another episode.
        """
        hint = "Ask for a new one: swarm page EPISODE."
        try:
            payload = self._serializer.loads(ticket)
            known, expires_at = str(payload["e"]), float(payload["x"])
        except (BadData, KeyError, TypeError, ValueError):
            raise AuthError("The ticket is damaged or of another server.", hint=hint) from None
        if known != episode_id:
            raise Forbidden("The ticket is for the page of another episode.", hint=hint)
        if now >= expires_at:
            raise AuthError("The ticket has expired.", hint=hint)
