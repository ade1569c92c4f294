"""Versions of the clients' code: which are in use, and what becomes of a group whose version nobody uses any more.

Groups never mix versions. A group whose version is gone can only be filled by a client that comes back with it, so it must not
stand in the way of one that is there: when a client asks for an episode of the same task set with another version, groups that
are not complete are dropped, and complete ones of an older version are kept or discarded (``batch.code_change``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from swarm.protocol.episodes import GrantRequest
from swarm.protocol.states import EpisodeKind, FateReason
from swarm.server.service import policies
from swarm.server.service.core import Core
from swarm.server.service.endings import Endings
from swarm.server.service.groups import Group

LIMIT = 1024
"""Clients whose versions are remembered (beyond that those that are gone are forgotten), and versions whose order is."""


@dataclass(slots=True)
class _Uses:
    """The versions that one life of a client asked with: version -> monotonic seconds of the last time, the latest last."""

    life: str | None
    """``Client.life``; None = it has no lease."""
    asked: dict[str, float] = field(default_factory=dict[str, float])


class CodeVersions:
    """Remembers who asked with which version, and makes room for those that are in use."""

    def __init__(self, core: Core, endings: Endings) -> None:
        self._core = core
        self._endings = endings
        self._uses: dict[str, _Uses] = {}
        self._order: dict[str, int] = {}
        """Version -> its number in the order of first asking; one that is not there is older than those, or than this process."""
        self._seen = 0

    def note(self, request: GrantRequest) -> GrantRequest:
        """Return a request that names its version (its own word, else what the client registered), and remember that."""
        client = self._core.clients.get(request.client_id)
        code_hash = request.code_hash or (client.code_hash if client is not None else "")
        if request.kind is EpisodeKind.TRAIN:
            self._number(code_hash)
            life = client.life if client is not None else None
            uses = self._uses.get(request.client_id)
            if uses is None or uses.life != life:
                uses = self._uses[request.client_id] = _Uses(life)
            self._ask(uses, code_hash)
            self._forget_some()
        return request if request.code_hash == code_hash else _with(request, code_hash)

    def _number(self, code_hash: str) -> None:
        """Give a version that is asked with for the first time the next number; the oldest ones are forgotten."""
        if code_hash not in self._order:
            self._order[code_hash] = self._seen
            self._seen += 1
            if len(self._order) > LIMIT:
                del self._order[next(iter(self._order))]

    def _ask(self, uses: _Uses, code_hash: str) -> None:
        """Note a use, and forget those that count no more: neither the last one nor within a lease's time."""
        now = self._core.clock.monotonic()
        uses.asked.pop(code_hash, None)
        while uses.asked and now - next(iter(uses.asked.values())) >= self._core.clients.lease_s:
            del uses.asked[next(iter(uses.asked))]
        uses.asked[code_hash] = now

    def make_room(self, request: GrantRequest) -> None:
        """Drop the groups that stand in the way of a noted train request because nobody uses their version any more."""
        pool = self._core.pool
        if pool.code_hashes <= {request.code_hash} or policies.is_ready(pool):
            return  # nothing stands in its way, or nothing is needed any more
        others = [
            group
            for group in pool.alive()
            if group.task_set == request.task_set and group.code_hash != request.code_hash
        ]
        gone = {code for code in {group.code_hash for group in others} if not self._in_use(code)}
        for code_hash in sorted(gone):
            mine = [group for group in others if group.code_hash == code_hash]
            self._give_up(mine, code_hash, request)

    def _give_up(self, groups: list[Group], code_hash: str, request: GrantRequest) -> None:
        core = self._core
        keep = core.config.batch.code_change == "keep" or not self._older(code_hash, request)
        out = [group for group in groups if not (keep and group.complete)]
        if not out:
            return
        fate = FateReason.CODE_CHANGED
        why = f"{fate.value}: nobody plays code {code_hash!r} any more, code {request.code_hash!r} does"
        episodes = sum(self._endings.discard_group(group, fate, why) for group in out)
        core.events.try_add(
            "code_replaced",
            incarnation=core.incarnation,
            step=core.step,
            task_set=request.task_set,
            old=code_hash,
            new=request.code_hash,
            groups_kept=len(groups) - len(out),
            groups_dropped=len(out),
            episodes_dropped=episodes,
        )

    def _older(self, code_hash: str, request: GrantRequest) -> bool:
        return self._order.get(code_hash, -1) < self._order.get(request.code_hash, 0)

    def _in_use(self, code_hash: str) -> bool:
        """Whether an open episode has this version, or a client that is there asked with it last (or within a lease's time)."""
        if any(
            episode.details.code_hash == code_hash
            for episode in self._core.book.open(EpisodeKind.TRAIN)
        ):
            return True
        return any(self._is_use(name, uses, code_hash) for name, uses in self._uses.items())

    def _is_use(self, client_id: str, uses: _Uses, code_hash: str) -> bool:
        at = uses.asked.get(code_hash)
        if at is None or not self._lives(client_id, uses):
            return False
        if uses.life is not None and next(reversed(uses.asked)) == code_hash:
            return True
        return self._core.clock.monotonic() - at < self._core.clients.lease_s

    def _lives(self, client_id: str, uses: _Uses) -> bool:
        client = self._core.clients.get(client_id)
        return uses.life is None or (client is not None and client.life == uses.life)

    def _forget_some(self) -> None:
        if len(self._uses) <= LIMIT:
            return
        now, lease_s = self._core.clock.monotonic(), self._core.clients.lease_s
        for name, uses in list(self._uses.items()):
            last = max(uses.asked.values(), default=0.0)
            if not self._lives(name, uses) or (uses.life is None and now - last >= lease_s):
                del self._uses[name]


def _with(request: GrantRequest, code_hash: str) -> GrantRequest:
    return request.model_copy(update={"code_hash": code_hash})
