"""The consumer groups of an open directory, by name: the part of `Eventproc` that makes and finds them.

What serves them is imported by the first call, because a program without topics must not pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from eventproc.groups import (
    READERS,
    GroupOptions,
    GroupStart,
    TruncatedPolicy,
    ensure_group,
    get_group,
    group_name,
)
from eventproc.store.database import Database
from eventproc.store.groups import EQUAL

if TYPE_CHECKING:
    from eventproc.topics import ConsumerGroup


class ConsumerSystem:
    """The part of `Eventproc` that makes and finds consumer groups."""

    _db: Database

    async def create_consumer_group(
        self,
        name: str,
        topics: Sequence[str],
        *,
        assignor: str = EQUAL,
        start: GroupStart = "head",
        lease_ms: int | None = None,
        rebalance_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
    ) -> ConsumerGroup:
        """Create a group of consumers that share `topics`, and return its handle; returns the existing one if equal.

        Args:
            name: "scope/group", or "group" in the scope of the first topic.
            topics: names of the topics, "scope/topic". Streams work too: their segments are the partitions. A topic
                that is deleted leaves the group, and the others go on.
            assignor: who decides which consumer owns which partition: "equal" (default; as few moves as possible),
                "range", "round_robin", "lag" (spreads the unread events), or the name of an own `Assignor`, whose code
                its consumers bring.
            start: where a new group begins: "head" (default), "tail", cuts, or a time in ms. Partitions that are added
                later are read from their beginning. A topic that a consumer's names or patterns bring later begins at
                the tail or at that time, too, if it is older than the group; at its head if it is younger, or with
                cuts. An existing group keeps its offsets.
            lease_ms: longest time between two polls before a consumer counts as hung, in ms. None (default): only
                dead consumers are removed.
            rebalance_ms: how long a consumer may take to release a partition that another one shall own, in ms. A
                consumer that exceeds it is expired. None (default): until its next poll.
            on_truncated: where to continue when unread events were truncated. Default: the earliest readable event.

        Raises:
            NotFound: no such topic.
            AlreadyExists: the group exists with other topics, or with options that are neither its present ones nor
                those that it was created with.
            GroupStreamReplaced: the group reads a deleted topic of one of these names.
            InvalidArgument: a name or an option is not valid.
            InvalidCut: a cut is not one of the topic.
            Truncated: a cut lies before the head of the topic.
        """
        from eventproc.topics import ConsumerGroup

        options = GroupOptions(
            lease_ms=lease_ms,
            rebalance_ms=rebalance_ms,
            on_truncated=on_truncated,
            on_deleted="drop",
            added_start=start if isinstance(start, int) else "tail" if start == "tail" else "head",
            assignor=assignor,
        )
        full = group_name(name, topics)
        make = partial(ensure_group, name=full, streams=topics, start=start, kind=READERS, options=options)
        await self._db.write(make)
        return ConsumerGroup(self._db, full)

    async def consumer_group(self, name: str) -> ConsumerGroup:
        """Return the handle of a consumer group. `reader_groups` lists them all.

        Args:
            name: "scope/group".

        Raises:
            NotFound: no such group.
            InvalidArgument: the name is not valid.
        """
        from eventproc.topics import ConsumerGroup

        full = group_name(name)
        await self._db.read(partial(get_group, name=full))
        return ConsumerGroup(self._db, full)
