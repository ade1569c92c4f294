"""What both colours of client share: their settings, and the requests that they build. Sends nothing."""

from __future__ import annotations

from typing import Any, Self

from swarm.client import calls
from swarm.client.calls import LONG_POLL_S, Call
from swarm.client.leases import registered_id, role_for
from swarm.client.openai_clients import OpenAIClients
from swarm.client.settings import ClientSettings, new_client_id
from swarm.protocol.clients import ClientRegistration, ControllerLease, ControllerRequest
from swarm.protocol.episodes import Grant, GrantRequest
from swarm.protocol.states import EpisodeKind, Role

ABORT_DEADLINE_S = 5.0
"""Aborting after a failure must not hide the failure behind a long wait."""


class ClientBase:
    """A client without its connections."""

    _transport: Any

    def __init__(
        self,
        url: str,
        token: str,
        client_id: str | None = None,
        *,
        code_hash: str = "",
        timeout_s: float = 30.0,
        chat_timeout_s: float = 600.0,
    ) -> None:
        """Connect lazily to the server at ``url``.

        Args:
            url: ``http(s)://host:port``, as the ready record names it.
            token: an admin, client or eval token.
            client_id: stable id of this client; a later client with the same id replaces it and aborts its open episodes.
            code_hash: version of the client's code (agent, environment, reward); groups never mix two. Empty = not told.
            timeout_s: deadline of a control call, retries included.
            chat_timeout_s: deadline of a chat call, held time included.
        """
        self._connect(
            ClientSettings(
                url,
                token,
                client_id or new_client_id(),
                named=bool(client_id),
                code_hash=code_hash,
                timeout_s=timeout_s,
                chat_timeout_s=chat_timeout_s,
            )
        )

    @classmethod
    def of(cls, settings: ClientSettings) -> Self:
        """A client with these settings, instance included: a second connection of the same client."""
        client = cls.__new__(cls)
        client._connect(settings)
        return client

    def _connect(self, settings: ClientSettings) -> None:
        """Keep the settings and make what sends; nothing is opened."""
        self.settings = settings
        self._sdks = OpenAIClients(settings.chat_timeout_s)

    @property
    def client_id(self) -> str:
        """The id that this client registers."""
        return self.settings.client_id

    def registration(self, role: Role, code_hash: str | None = None) -> ClientRegistration:
        """What this client registers as ``role``; without a ``code_hash`` its own."""
        return ClientRegistration(
            client_id=registered_id(self.client_id, role),
            role=role,
            code_hash=self.settings.code_hash if code_hash is None else code_hash,
            instance=self.settings.instance,
        )

    def control_call(self, *, release: bool) -> Call[ControllerLease]:
        """Ask for the controller lease, or give it back (without waiting long for a server that is away)."""
        request = ControllerRequest(client_id=self.client_id, release=release)
        call = calls.controller(request)
        return call.within(ABORT_DEADLINE_S) if release else call

    def named(self, request: GrantRequest) -> GrantRequest:
        """The request with this client's instance and, where it has none, its code hash."""
        return request.model_copy(
            update={
                "instance": request.instance or self.settings.instance,
                "code_hash": request.code_hash or self.settings.code_hash,
            }
        )

    def request_for(
        self, task_id: str, kind: EpisodeKind, grant_timeout_s: float, **more: Any
    ) -> GrantRequest:
        """A request for one episode, held as long as one held request may be; ``more`` are fields of ``GrantRequest``."""
        return GrantRequest(
            client_id=registered_id(self.client_id, role_for(kind)),
            kind=kind,
            task_id=task_id,
            wait_s=min(LONG_POLL_S, grant_timeout_s),
            **more,
        )

    def facts_of(self, grant: Grant, request: GrantRequest) -> dict[str, Any]:
        """What an episode object is told beside its grant."""
        return {
            "task_id": grant.task_id or request.task_id,
            "task_set": request.task_set,
            "kind": request.kind,
            "chat_timeout_s": self.settings.chat_timeout_s,
        }

    def access_parts(self, api_key: str, base_url: str) -> tuple[Any, ...]:
        """What ``AsyncAccess`` or ``SyncAccess`` is made of, for a key of one of this server's episodes."""
        timeout_s = self.settings.chat_timeout_s
        return (api_key, base_url, timeout_s, self._transport, self._sdks)
