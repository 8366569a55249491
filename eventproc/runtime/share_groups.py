"""The share groups of an open directory, by name.

What serves them is imported by the first call, because a program without share groups must not pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from eventproc.groups import GroupInfo, GroupStart, get_group, group_info, group_name, list_groups
from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.groups import DELIVERIES_MAX, LOCK_MS, SHARE, ShareOptions
from eventproc.store.model.argument_checks import check_str
from eventproc.store.model.list_pages import ListPage

if TYPE_CHECKING:
    from eventproc.shares import ShareGroup


class ShareSystem:
    """The part of `Eventproc` that makes and finds share groups."""

    _db: Database

    async def create_share_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        lock_ms: int = LOCK_MS,
        deliveries_max: int = DELIVERIES_MAX,
    ) -> ShareGroup:
        """Create a share group, and return its handle; returns the existing one if equal.

        Its consumers share the events of `streams` one by one, and accept each of them: a queue. It promises no order.

        Args:
            name: "scope/group", or "group" in the scope of the first stream.
            streams: names of the streams or topics, "scope/stream".
            start: where a new group begins: "head" (default), "tail", cuts, or a time in ms. An existing group keeps
                its position.
            lock_ms: how long a consumer holds an event unless it renews the lock, in ms. Default: 30 s.
            deliveries_max: after so many deliveries an event that nobody accepted becomes a dead letter. Default: 5.

        Raises:
            NotFound: no such stream.
            AlreadyExists: the group exists with other streams or options, or a reader group has that name.
            InvalidArgument: a name or an option is not valid.
            InvalidCut: a cut is not one of the stream.
            Truncated: a cut lies before the head of the stream.
        """
        from eventproc.shares import ShareGroup, ensure_share_group

        options = ShareOptions(lock_ms=lock_ms, deliveries_max=deliveries_max)
        full = group_name(name, streams)
        make = partial(ensure_share_group, name=full, streams=streams, start=start, options=options)
        await self._db.write(make, step=Step.SHARE_CREATE)
        return ShareGroup(self._db, full)

    async def share_group(self, name: str) -> ShareGroup:
        """Return the handle of a share group.

        Args:
            name: "scope/group".

        Raises:
            NotFound: no such share group.
            InvalidArgument: the name is not valid.
        """
        from eventproc.shares import ShareGroup

        full = group_name(name)
        await self._db.read(partial(get_group, name=full, share=True))
        return ShareGroup(self._db, full)

    async def share_groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[GroupInfo]:
        """Return the share groups, by scope and name.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            prefix: only those whose names in their scopes begin with it. Default: all.
            after: name of the last group of the previous page, "scope/group". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        if scope is not None:
            check_str("scope", scope)
        look = partial(list_groups, scope=scope, page=ListPage.of(prefix, after, limit), kinds=[SHARE])
        return list(map(group_info, await self._db.read(look)))
