"""What of a step's pool goes on in the next one (asynchronous mode): open episodes, and finished ones that may still train."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from swarm.server.service.episodes import Episode
from swarm.server.service.groups import Group, Pool

FEWEST = 2
"""Members that the rest of a group needs: one alone has nothing to be compared with."""


def rests(pool: Pool, gone: Collection[Episode]) -> Iterator[tuple[Group, list[Episode]]]:
    """Yield each group that was not dropped with its members, open or finished, that are not in ``gone``; none empty."""
    for group in pool.alive():
        members = [*group.open.values(), *group.finished.values()]
        left = [episode for episode in members if episode not in gone]
        if left:
            yield group, left


def torn(
    pool: Pool, consumed: Collection[Episode], dropped: Collection[Episode] = ()
) -> list[Episode]:
    """Return the members that are left alone, fewer than ``FEWEST``, of groups of which some were consumed."""
    return [
        episode
        for group, left in rests(pool, {*consumed, *dropped})
        if len(left) < FEWEST and any(e in consumed for e in group.finished.values())
        for episode in left
    ]


def carry(
    old: Pool, new: Pool, *, consumed: Collection[Episode], dropped: Collection[Episode]
) -> None:
    """Put the groups of ``old`` into ``new`` (empty, of the next step), without episodes that were consumed or dropped.

    Groups keep their size; those without a member left stay behind. The seat of a consumed member is not filled again; every
    other empty one is.
    """
    staying: set[Episode] = set()
    for group, left in rests(old, {*consumed, *dropped}):
        mine = new.restore_group(
            group.group_id, group.task_set, group.task_id, group.code_hash, group.size
        )
        mine.shared = group.shared
        taken = sum(episode in consumed for episode in group.finished.values())
        for _ in range(group.forgone + taken):
            new.restore_forgone(mine)
        staying.update(left)
        for episode in left:
            if episode.is_open:
                new.seat(mine, episode)
    for episode in old.finish_order:
        if episode in staying:
            new.finish(episode)
