"""Who asks: the key of a request, the power of a role token, and whose episodes a token may touch.

Client tokens train (and may evaluate), the eval token only evaluates, the admin token may everything. A client token cannot
act for, or read the evaluations of, a client that uses the eval token, and the other way round.
"""

from __future__ import annotations

from starlette.requests import Request

from swarm.protocol.errors import AuthError
from swarm.protocol.messages import EpisodeTrace
from swarm.protocol.states import EpisodeKind
from swarm.server.keys import Power, Tokens

ANY = (Power.ADMIN, Power.CLIENT, Power.EVAL)
TRAINERS = (Power.ADMIN, Power.CLIENT)
EVALUATORS = (Power.ADMIN, Power.EVAL)
ADMIN_ONLY = (Power.ADMIN,)


def presented_key(request: Request) -> str:
    """Return the key of a request: of the URL (``/e/<key>/...``), else ``Authorization: Bearer``, else ``x-api-key``.

    Raises:
        AuthError: None was sent.
    """
    in_url = request.path_params.get("token", "")
    if in_url:
        return in_url
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    key = value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    if not key:
        raise AuthError(
            "The request carries no key.",
            hint="Send 'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
        )
    return key


class Gate:
    """Checks role tokens and remembers which token each client uses (in memory, as registrations are kept)."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._owners: dict[str, Power] = {}

    def power(self, request: Request, allowed: tuple[Power, ...]) -> Power:
        """Return the power of the presented token.

        Raises:
            AuthError: No token, an unknown one, or one without any of the ``allowed`` powers.
        """
        power = self._tokens.power_of(presented_key(request))
        if power not in allowed:
            needed = " or ".join(repr(p.value) for p in allowed)
            raise AuthError(
                f"The {power.value!r} token has no power to do this.",
                hint=f"It takes the {needed} token.",
            )
        return power

    def claim(self, client_id: str, power: Power) -> None:
        """Note who uses ``client_id``; ``AuthError`` when it belongs to the other kind of token."""
        self.require_client(client_id, power)
        if power is not Power.ADMIN:
            self._owners[client_id] = power

    def require_client(self, client_id: str, power: Power) -> None:
        """Raise ``AuthError`` when ``client_id`` belongs to the other kind of token."""
        owner = self._owners.get(client_id, power)
        if power is not Power.ADMIN and owner is not power:
            raise AuthError(
                f"Client {client_id!r} belongs to the {owner.value!r} token.",
                hint="Use that token, or another client id.",
                client_id=client_id,
            )

    def require_kind(self, kind: EpisodeKind, power: Power) -> None:
        """Raise ``AuthError`` when the eval token is about to touch a train episode."""
        if power is Power.EVAL and kind is not EpisodeKind.EVAL:
            raise AuthError(
                "The 'eval' token cannot touch train episodes.",
                hint="Ask for kind 'eval', or use the client token.",
            )

    def require_episode(self, episode: EpisodeTrace, power: Power, *, read: bool = False) -> None:
        """Raise ``AuthError`` when this token may not end (or ``read``) the episode. The eval token reads any eval episode."""
        self.require_kind(episode.kind, power)
        if not (read and power is Power.EVAL):
            self.require_client(episode.client_id, power)
