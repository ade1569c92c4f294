"""Who asks: the key of a request, the power of a role token, and whose episodes a token may touch.

Client tokens train (and may evaluate), the eval token only evaluates, the admin token may everything. A client token cannot
act for, or read the evaluations of, a client that uses the eval token, and the other way round.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import unquote

from starlette.requests import Request

from swarm.protocol.clients import CLIENT_HEADER
from swarm.protocol.errors import AuthError, Forbidden
from swarm.protocol.states import EpisodeKind
from swarm.server.keys import KEY_PREFIX, EpisodeKeys, Power, Tokens

ANY = (Power.ADMIN, Power.CLIENT, Power.EVAL)
TRAINERS = (Power.ADMIN, Power.CLIENT)
EVALUATORS = (Power.ADMIN, Power.EVAL)
ADMIN_ONLY = (Power.ADMIN,)
MAX_CLIENT_ID = 128


def presented_key(request: Request) -> str:
    """Return the key of a request: of the URL (``/e/<key>/...``), else ``Authorization: Bearer``, else ``x-api-key``.

    Raises:
        AuthError: None was sent.
    """
    in_url = request.path_params.get("token", "")
    if in_url:
        return in_url
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    bearer = value.strip() if scheme.lower() == "bearer" else ""
    key = bearer or request.headers.get("x-api-key", "").strip()
    if not key:
        raise AuthError(
            "The request carries no key.",
            hint="Send 'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
        )
    return key


def asker(request: Request, power: Power) -> str:
    """Return who asks, for the record: the client id of the header ``X-Swarm-Client``, else the token's power.

    A name that the holder of a token gives itself; it opens nothing.
    """
    told = unquote(request.headers.get(CLIENT_HEADER, "")).strip()[:MAX_CLIENT_ID]
    return told if told and told.isprintable() else power.value


class Owners(Protocol):
    """Which kind of token each client id belongs to, kept for good by the service."""

    def owner(self, client_id: str) -> str:
        """Return the power that claimed the id; empty when nobody did."""
        ...

    def set_owner(self, client_id: str, power: str) -> None:
        """Keep who claimed the id."""
        ...


class Owned(Protocol):
    """What says whose an episode is: its trace, or what is in memory of it."""

    @property
    def kind(self) -> EpisodeKind:
        """Train or eval."""
        ...

    @property
    def client_id(self) -> str:
        """Who was granted it."""
        ...


class Gate:
    """Checks role tokens, and that a client's id is used with the kind of token that claimed it (``owners``)."""

    def __init__(self, tokens: Tokens, owners: Owners) -> None:
        self._tokens = tokens
        self._keys = EpisodeKeys(tokens.signing)
        self._owners = owners

    def power(self, request: Request, allowed: tuple[Power, ...]) -> Power:
        """Return the power of the presented token.

        Raises:
            AuthError: No token, or an unknown one.
            Forbidden: The token has none of the ``allowed`` powers, or it is the key of an episode.
        """
        key, needed = presented_key(request), " or ".join(repr(p.value) for p in allowed)
        try:
            power = self._tokens.power_of(key)
        except AuthError:
            if not self._is_episode_key(key):
                raise
            raise Forbidden(
                "The key of an episode opens only its own episode's calls.",
                hint=f"It takes the {needed} token.",
            ) from None
        if power not in allowed:
            raise Forbidden(
                f"The {power.value!r} token has no power to do this.",
                hint=f"It takes the {needed} token.",
            )
        return power

    def episode_key(self, request: Request) -> str:
        """Return the key of a request that only an episode's key opens.

        Raises:
            AuthError: None was sent.
            Forbidden: It is a role token.
        """
        key = presented_key(request)
        if not key.startswith(KEY_PREFIX) and self._is_token(key):
            raise Forbidden(
                "Calls of agents take the key of an episode, not a role token.",
                hint="Take an episode (POST /swarm/episodes) and use the api_key of its grant.",
            )
        return key

    def _is_token(self, key: str) -> bool:
        try:
            self._tokens.power_of(key)
        except AuthError:
            return False
        return True

    def _is_episode_key(self, key: str) -> bool:
        try:
            self._keys.verify(key, 0.0)
        except AuthError:
            return False
        return True

    def claim(self, client_id: str, power: Power) -> None:
        """Note who uses ``client_id``; ``Forbidden`` when it belongs to the other kind of token."""
        self.require_client(client_id, power)
        if power is not Power.ADMIN:
            self._owners.set_owner(client_id, power.value)

    def require_client(self, client_id: str, power: Power) -> None:
        """Raise ``Forbidden`` when ``client_id`` belongs to the other kind of token."""
        if power is Power.ADMIN:
            return
        owner = self._owners.owner(client_id)
        if owner and owner != power.value:
            raise Forbidden(
                f"Client {client_id!r} belongs to the {owner!r} token.",
                hint="Use that token, or another client id.",
                client_id=client_id,
            )

    def require_kind(self, kind: EpisodeKind, power: Power) -> None:
        """Raise ``Forbidden`` when the eval token is about to touch a train episode."""
        if power is Power.EVAL and kind is not EpisodeKind.EVAL:
            raise Forbidden(
                "The 'eval' token cannot touch train episodes.",
                hint="Ask for kind 'eval', or use the client token.",
            )

    def require_episode(self, episode: Owned, power: Power, *, read: bool = False) -> None:
        """Raise ``Forbidden`` when this token may not end (or ``read``) the episode. The eval token reads any eval episode."""
        self.require_kind(episode.kind, power)
        if not (read and power is Power.EVAL):
            self.require_client(episode.client_id, power)
