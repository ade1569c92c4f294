"""Hosts that a person added over SSH, and how the daemon's link to each is."""

from __future__ import annotations

from typing import Any

from sqlmodel import col, select

from a3r.core.types import HostState, LinkState
from a3r.store.book import Book, fetch
from a3r.store.rows import HostRow
from a3r.store.tables import HostTable, WorkerTokenTable


def host_token(name: str) -> str:
    """Name of the token of the host's worker."""
    return f"host-{name}"


class HostBook(Book):
    """What the Store says about hosts."""

    def put_host(self, name: str, address: str, options: dict[str, Any], at: float) -> HostRow:
        """Add the host, or bring it up to date; the same again changes nothing. It is wanted from now on."""
        wanted = (address, options, HostState.ACTIVE.value)
        with self._db.write() as session:
            record = session.get(HostTable, name)
            if record is None:
                record = HostTable(
                    name=name,
                    address=address,
                    options=options,
                    state=HostState.ACTIVE.value,
                    link=LinkState.WAITING.value,
                    link_at=at,
                    created_at=at,
                    updated_at=at,
                )
            elif (record.address, record.options, record.state) != wanted:
                record.address, record.options, record.state = wanted
                record.updated_at = at
            session.add(record)
            session.flush()
            return HostRow.model_validate(record.model_dump())

    def set_host_state(self, name: str, state: HostState, at: float) -> HostRow:
        """Say what is wanted of the host.

        Raises:
            NotFound: there is none of this name.
        """
        with self._db.write() as session:
            record = fetch(session, HostTable, name, "host")
            if record.state != state.value:
                record.state, record.updated_at = state.value, at
            session.add(record)
            session.flush()
            return HostRow.model_validate(record.model_dump())

    def note_host_link(self, name: str, link: LinkState, detail: str, at: float) -> None:
        """File how the link is; a host that is gone by now is fine."""
        with self._db.write() as session:
            record = session.get(HostTable, name)
            if record is None:
                return
            if record.link != link.value:
                record.link, record.link_at = link.value, at
            record.detail = detail
            session.add(record)

    def remove_host(self, name: str, at: float) -> None:
        """Forget the host; its worker's token opens nothing any more. Safe to repeat."""
        with self._db.write() as session:
            record = session.get(HostTable, name)
            if record is not None:
                session.delete(record)
            token = session.get(WorkerTokenTable, host_token(name))
            if token is not None:
                token.revoked_at = token.revoked_at or at
                session.add(token)

    def worker_of_host(self, name: str) -> str | None:
        """Id of the worker that uses the host's token; None before one came."""
        with self._db.read() as session:
            token = session.get(WorkerTokenTable, host_token(name))
            return token.worker_id if token is not None else None

    def host(self, name: str) -> HostRow:
        """One host.

        Raises:
            NotFound: there is none of this name; the nearest is suggested.
        """
        with self._db.read() as session:
            return HostRow.model_validate(fetch(session, HostTable, name, "host").model_dump())

    def hosts(self) -> list[HostRow]:
        """All of them, by name."""
        with self._db.read() as session:
            found = session.exec(select(HostTable).order_by(col(HostTable.name)))
            return [HostRow.model_validate(h.model_dump()) for h in found]
