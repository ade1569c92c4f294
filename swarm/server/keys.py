"""Who may do what: the tokens of the control routes and the signed keys of episodes.

Knows nothing of HTTP or of episodes' states; it says only which power or which episode a presented string stands for.
No message of an error ever contains what was presented.
"""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from swarm.protocol.errors import AuthError, ConfigError

KEY_PREFIX = "sk-swarm-"
TOKEN_FILE = "tokens.json"  # noqa: S105 - the name of a file
_SALT = "swarm.episode-key.v1"
_CACHE_LIMIT = 8192


class Power(StrEnum):
    """What a control token allows; ``swarm.server.routes`` maps routes to powers."""

    ADMIN = "admin"
    CLIENT = "client"
    EVAL = "eval"


@dataclass(frozen=True)
class Tokens:
    """The secrets of one state folder; none of them shows in ``repr``."""

    admin: str = field(repr=False)
    client: str = field(repr=False)
    eval: str = field(repr=False)
    signing: str = field(repr=False)
    """Signs episode keys; it opens no route."""

    @property
    def server_id(self) -> str:
        """Name of this state folder's server, for good: 16 hex digits that tell nothing of the secret they come from."""
        return hmac.new(self.signing.encode(), b"swarm.server-id.v1", "sha256").hexdigest()[:16]

    @classmethod
    def mint(cls) -> Tokens:
        """Return four fresh random secrets (256 bits each), kept nowhere."""
        return cls(*(secrets.token_urlsafe(32) for _ in fields(cls)))

    @classmethod
    def load(cls, state_dir: Path) -> Tokens:
        """Read ``state_dir/tokens.json``; mint it (mode 0600) when it is absent. Safe to call twice.

        Raises:
            ConfigError: the file is not readable or is not the JSON object that this class writes.
        """
        path = state_dir / TOKEN_FILE
        state_dir.mkdir(parents=True, exist_ok=True)
        try:
            return cls._create(path)
        except FileExistsError:
            return cls._read(path)
        except OSError as err:
            raise ConfigError(
                f"the token file {str(path)!r} cannot be written: {err.strerror}",
                hint="choose a --state-dir that this user can write to",
            ) from err

    @classmethod
    def _create(cls, path: Path) -> Tokens:
        """Write minted tokens beside ``path`` and link them in, so that no reader sees half a file."""
        if path.exists():
            raise FileExistsError(path)
        tokens = cls.mint()
        draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(asdict(tokens)), indent=2))
            os.link(draft, path)  # fails when another process was first
        finally:
            draft.unlink()
        return tokens

    @classmethod
    def _read(cls, path: Path) -> Tokens:
        try:
            raw = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
            tokens = cls(**{f.name: raw[f.name] for f in fields(cls)})
        except (OSError, msgspec.MsgspecError, KeyError) as err:
            raise ConfigError(
                f"the token file {str(path)!r} cannot be read ({type(err).__name__})",
                hint="restore it, or delete it to mint new tokens (clients then need the new ones)",
            ) from err
        if not all(asdict(tokens).values()):
            raise ConfigError(
                f"the token file {str(path)!r} has an empty token",
                hint="delete the file to mint new tokens",
            )
        path.chmod(0o600)
        return tokens

    def power_of(self, presented: str | None) -> Power:
        """Say which power a bearer token carries; every comparison takes constant time.

        Raises:
            AuthError: nothing was presented, or it is none of the tokens.
        """
        if not presented:
            raise AuthError(
                "this route needs a token and none was sent",
                hint="send 'Authorization: Bearer <token>' with a token from tokens.json in the server's state folder",
            )
        given = presented.encode()
        found: Power | None = None
        for power, known in zip(Power, (self.admin, self.client, self.eval), strict=True):
            if hmac.compare_digest(given, known.encode()):
                found = power
        if found is None:
            raise AuthError(
                "the token is not one of this server's",
                hint="take the token from tokens.json in the state folder of this server",
            )
        return found


class KeyHolder(NamedTuple):
    """Whom an episode key lets in."""

    episode_id: str
    agent: str = ""
    """One agent of a multi-agent episode; empty = the episode's own key."""


class EpisodeKeys:
    """Signs and checks episode keys: ``sk-swarm-<payload>.<signature>``; the payload is readable, not forgeable."""

    def __init__(self, signing: str) -> None:
        """``signing`` is the secret of ``Tokens.signing``."""
        self._serializer = URLSafeSerializer(signing, salt=_SALT)
        self._known: dict[str, tuple[KeyHolder, int]] = {}

    def sign(self, episode_id: str, expires_at: float, agent: str = "") -> str:
        """Return the key of an episode (or of one ``agent`` in it), valid until ``expires_at`` (unix seconds, rounded up)."""
        whole = -int(-expires_at // 1)
        holder = KeyHolder(episode_id, agent)
        key = self._spell(holder, whole)
        self._remember(key, (holder, whole))  # its holder is about to present it
        return key

    def verify(self, key: str, now: float) -> KeyHolder:
        """Return what ``key`` opens at ``now`` (unix seconds). Whether the episode is still open is not known here.

        Raises:
            AuthError: not a key of this server, changed by one character, or expired.
        """
        known = self._known.get(key)
        if known is None:
            known = self._decode(key)
            self._remember(key, known)
        holder, expires_at = known
        if now >= expires_at:
            raise AuthError(
                "the episode key has expired",
                hint="ask for a new episode; a key lives as long as its episode may",
            )
        return holder

    def _decode(self, key: str) -> tuple[KeyHolder, int]:
        hint = "use the api_key of the grant unchanged; it opens only its own episode on its own server"
        if not key.startswith(KEY_PREFIX):
            raise AuthError("this is not an episode key", hint=hint)
        try:
            payload = self._serializer.loads(key[len(KEY_PREFIX) :])
            holder = KeyHolder(str(payload["e"]), str(payload.get("a", "")))
            expires_at = int(payload["x"])
        except (BadData, KeyError, TypeError, ValueError):
            # The cause is left out: its text quotes the key.
            raise AuthError("the episode key is damaged or of another server", hint=hint) from None
        if self._spell(holder, expires_at) != key:  # base64 has spare bits: one key, one spelling
            raise AuthError("the episode key is damaged or of another server", hint=hint)
        return holder, expires_at

    def _spell(self, holder: KeyHolder, expires_at: int) -> str:
        payload: dict[str, str | int] = {"e": holder.episode_id, "x": expires_at}
        if holder.agent:
            payload["a"] = holder.agent
        return f"{KEY_PREFIX}{self._serializer.dumps(payload)}"

    def _remember(self, key: str, known: tuple[KeyHolder, int]) -> None:
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known[key] = known
