"""The two tokens of a daemon: ``admin`` (the person's command line) and ``worker``; minted once, kept in 0600 files."""

from __future__ import annotations

import hmac
import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from a3r.core.errors import AuthFailed, WorkspaceError
from a3r.core.ids import new_token

TOKENS_FILE = "tokens.json"
WORKER_TOKEN_FILE = "worker.token"  # noqa: S105 - a file name
"""The worker's token alone: a worker never needs to read the admin's."""


class Role(StrEnum):
    """Who a token belongs to."""

    ADMIN = "admin"
    WORKER = "worker"


@dataclass(frozen=True)
class HubTokens:
    """Secrets: kept out of ``repr``, logs and argv."""

    admin: str
    worker: str

    def __repr__(self) -> str:
        """Name the class only."""
        return "HubTokens(...)"

    @classmethod
    def load_or_mint(cls, folder: Path) -> HubTokens:
        """Return the tokens of ``folder``, minted when there are none. Only the daemon that holds the lock calls this.

        Raises:
            WorkspaceError: the file is damaged or cannot be written.
        """
        path = folder / TOKENS_FILE
        try:
            if path.exists():
                tokens = cls.read(folder)
            else:
                tokens = cls(new_token(), new_token())
                text = json.dumps({"admin": tokens.admin, "worker": tokens.worker})
                write_private(path, text)
            write_private(folder / WORKER_TOKEN_FILE, tokens.worker)
        except OSError as error:
            raise WorkspaceError(
                f"The daemon's tokens in {str(folder)!r} cannot be written: {error.strerror}.",
                hint="Make the folder writable and its disk non-full.",
            ) from error
        return tokens

    @classmethod
    def read(cls, folder: Path) -> HubTokens:
        """Return the tokens that a daemon left in ``folder``.

        Raises:
            AuthFailed: there is no such file, or it is not readable by this user, or it is damaged.
        """
        path = folder / TOKENS_FILE
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            return cls(admin=str(body["admin"]), worker=str(body["worker"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AuthFailed(
                f"The daemon's tokens cannot be read from {str(path)!r} ({type(error).__name__}).",
                hint="Use the account that started the daemon; if the file is damaged, stop the daemon and delete it.",
            ) from error

    def known(self, token: str) -> Role | None:
        """The role that ``token`` proves, None for neither; both comparisons take the same time whatever was sent."""
        sent = token.encode()
        is_admin = hmac.compare_digest(sent, self.admin.encode())
        is_worker = hmac.compare_digest(sent, self.worker.encode())
        if is_admin:
            return Role.ADMIN
        return Role.WORKER if is_worker else None

    def role_of(self, token: str) -> Role:
        """Return the role that ``token`` proves.

        Raises:
            AuthFailed: it is neither token.
        """
        role = self.known(token)
        if role is None:
            raise AuthFailed(
                "The token is not one of this hub's.",
                hint="The token may be that of another workspace's daemon.",
            )
        return role

    def proof(self, challenge: str, epoch: str) -> str:
        """Answer to a caller who wants to know that it speaks to this hub *before* it sends its token."""
        text = f"a3r-hub\0{challenge}\0{epoch}".encode()
        return hmac.new(self.admin.encode(), text, "sha256").hexdigest()


def write_private(path: Path, text: str) -> None:
    """Write ``text`` so that only this user can ever read it, atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
