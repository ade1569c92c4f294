"""All links of a daemon: one for each host on file, made, kept and ended as the rows say. Called once a second."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from a3r.core.errors import HostError
from a3r.core.ports import Clock
from a3r.core.types import HostState, LinkState
from a3r.hosts.link import Link, Wanted
from a3r.hosts.options import HostOptions
from a3r.store.rows import HostRow
from a3r.store.store import Store

logger = logging.getLogger(__name__)


class _Told(NamedTuple):
    state: LinkState
    words: str


class Links:
    """``tend`` never waits for a host."""

    def __init__(self, store: Store, clock: Clock, known_hosts: Path, hub_port: int) -> None:
        """``hub_port``: of the daemon's door for workers of other hosts, on loopback."""
        self._store, self._clock = store, clock
        self._known_hosts, self._hub_port = known_hosts, hub_port
        self._links: dict[str, Link] = {}
        self._told: dict[str, _Told] = {}
        self._closed = False

    def tend(self) -> None:
        """One look at every host."""
        rows = {row.name: row for row in self._store.hosts()}
        for name in [n for n in self._links if n not in rows]:
            self._drop(name)
        for row in rows.values():
            if self._closed:
                return
            self._tend(row)

    def close(self) -> None:
        """Hang up everywhere; workers stay. Safe to call twice."""
        self._closed = True
        for name in list(self._links):
            self._drop(name)

    def _tend(self, row: HostRow) -> None:
        try:
            wanted = self._wanted(row)
            link = self._links.get(row.name)
            if link is not None and link.wanted != wanted:
                self._drop(row.name)
                link = None
            if link is None:
                ssh = wanted.options.ssh(row.address, self._known_hosts)
                link = Link(wanted, ssh, self._hub_port, self._clock)
                self._links[row.name] = link
        except (HostError, ValidationError) as error:
            self._tell(row.name, _Told(LinkState.BROKEN, f"its options are of no use: {error}"))
            return
        link.look()
        self._tell(row.name, _Told(link.state, link.words))
        if row.state is HostState.REMOVING and not wanted.work and link.left:
            self._forget(row.name)

    def _wanted(self, row: HostRow) -> Wanted:
        options = HostOptions.model_validate(row.options)
        work = row.state is HostState.ACTIVE
        if not work and (worker_id := self._store.worker_of_host(row.name)) is not None:
            # A worker that died over its attempts is needed once more, to bring them to their end.
            work = bool(self._store.attempts_of_worker(worker_id))
        return Wanted(row.name, row.address, options, work=work)

    def _forget(self, name: str) -> None:
        """The worker of a host that is to be removed has left: its token and its row go too."""
        logger.info("Host %s has left.", name)
        self._store.remove_host(name, self._clock.time())
        self._drop(name)

    def _tell(self, name: str, told: _Told) -> None:
        if self._told.get(name) != told:
            self._told[name] = told
            self._store.note_host_link(name, told.state, told.words, self._clock.time())

    def _drop(self, name: str) -> None:
        self._told.pop(name, None)
        link = self._links.pop(name, None)
        if link is not None:
            link.close()
