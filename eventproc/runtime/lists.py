"""The lists of an open directory, as `Eventproc` returns them, and as a reader sees them that may not know all names.

What serves them is imported by the first call, because a program without them must not pay for it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from eventproc.groups import GroupInfo, group_info, list_groups
from eventproc.processors import ProcessorDescription, describe_processors
from eventproc.store.catalog import list_streams, list_topics
from eventproc.store.database import Database, Tx
from eventproc.store.groups import OWNED, SHARE, GroupKind
from eventproc.store.model.argument_checks import check_str
from eventproc.store.model.list_pages import ListPage, NameFilter, PageOptions
from eventproc.store.model.names import check_scope_name
from eventproc.streams import StreamInfo

if TYPE_CHECKING:
    from eventproc.ingestion.status import SupervisorInfo
    from eventproc.runtime.overview import Overview
    from eventproc.store.model.ingestion import TableInfo
    from eventproc.topics import TopicInfo


class ListSystem:
    """The part of `Eventproc` that lists what has a name."""

    _db: Database
    _readable: NameFilter | None = None

    async def streams(
        self,
        scope: str | None = None,
        *,
        tag: str | None = None,
        **options: Unpack[PageOptions],
    ) -> list[StreamInfo]:
        """Return the streams, by scope and name; topics are among them.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            tag: only those with this tag. None (default): with any.
            options: see `PageOptions`.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.

        Cost:
            A few look-ups for each segment.
        """
        if scope is not None:
            check_scope_name(scope)
        if tag is not None:
            check_str("tag", tag)
        page = ListPage.of(self._readable, **options)
        return await self._db.read(
            lambda tx: [StreamInfo.of(tx, each) for each in list_streams(tx, scope, page, tag=tag)]
        )

    async def topics(self, scope: str | None = None, **options: Unpack[PageOptions]) -> list[TopicInfo]:
        """Return the topics, by scope and name.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            options: see `PageOptions`.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.

        Cost:
            Reads the streams from the first to the last topic returned; a few look-ups for each partition.
        """
        from eventproc.topics import TopicInfo

        if scope is not None:
            check_scope_name(scope)
        page = ListPage.of(self._readable, **options)
        return await self._db.read(
            lambda tx: [TopicInfo.of(tx, each) for each in list_topics(tx, scope, page)]
        )

    async def groups(self, scope: str | None = None, **options: Unpack[PageOptions]) -> list[GroupInfo]:
        """Return the groups, by scope and name: those of readers, consumers and processors.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            options: see `PageOptions`.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return await self._list(scope, ListPage.of(self._readable, **options), OWNED)

    async def share_groups(self, scope: str | None = None, **options: Unpack[PageOptions]) -> list[GroupInfo]:
        """Return the share groups, by scope and name.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            options: see `PageOptions`.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return await self._list(scope, ListPage.of(self._readable, **options), [SHARE])

    async def _list(self, scope: str | None, page: ListPage, kinds: Collection[GroupKind]) -> list[GroupInfo]:
        if scope is not None:
            check_scope_name(scope)
        look = partial(list_groups, scope=scope, page=page, kinds=kinds)
        return list(map(group_info, await self._db.read(look)))

    async def processors(self, **options: Unpack[PageOptions]) -> list[ProcessorDescription]:
        """Return the processors and workers that ever ran here, by scope and name of their groups.

        Args:
            options: see `PageOptions`.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        page = ListPage.of(self._readable, **options)
        return await self._db.read(lambda tx: describe_processors(tx, self._db.peers, page))

    async def supervisors(self, **options: Unpack[PageOptions]) -> list[SupervisorInfo]:
        """Return the supervisors that have not ended, by id.

        Args:
            options: see `PageOptions`.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        from eventproc.ingestion.loop import get_situation
        from eventproc.ingestion.status import supervisor_info
        from eventproc.ingestion.visibility import list_supervisors

        page = ListPage.of(self._readable, **options)

        def look(tx: Tx) -> list[SupervisorInfo]:
            alive = self._db.peers.is_alive
            found = list_supervisors(tx, page)
            return [supervisor_info(get_situation(tx, each, alive)) for each in found]

        return await self._db.read(look)

    async def tables(self, **options: Unpack[PageOptions]) -> list[TableInfo]:
        """Return the tables that have published rows, by name.

        Args:
            options: see `PageOptions`.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
            NotSupported: there are tables, and the extra `tables` is not installed.

        Cost:
            Reads the metadata of each table that is returned.
        """
        from eventproc.ingestion.visibility import table_page
        from eventproc.store.ingestion.pointers import has_tables
        from eventproc.store.ingestion.table_access import on_tables

        page = ListPage.of(self._readable, **options)
        if not await self._db.read(has_tables):
            return []  # also of a store that has no place for them
        seen = await self._db.read(partial(table_page, page=page))
        return await on_tables(self._db, lambda tables: tables.summaries(seen))

    async def overview(self) -> Overview:
        """Return what the store does, at a glance: the busiest streams, the groups that are most behind, what waits.

        Cost:
            A few look-ups for each segment of all streams, and of those that the groups have not finished.
        """
        from eventproc.runtime.overview import overview_of

        return await self._db.read(partial(overview_of, readable=self._readable))


class SeenLists(ListSystem):
    """The lists of a directory with the names that a reader may know.

    readable: these names; None: all. Every list is filtered where its names are read, so that a page is full if there
    are more.
    """

    def __init__(self, db: Database, readable: NameFilter | None) -> None:
        self._db = db
        self._readable = readable
