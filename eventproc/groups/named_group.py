"""What the handles of a reader group and of a share group have in common."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Generic

from typing_extensions import TypeVar

from eventproc.groups.describe import GroupInfo, group_info
from eventproc.store.database import Database
from eventproc.store.groups import get_group
from eventproc.store.segments import Event
from eventproc.streams.codec import PayloadCodec

T = TypeVar("T", default=bytes)


class NamedGroup(Generic[T]):
    """A group by its name. T is the type of its payloads, which its readers and consumers take from here."""

    _is_share: ClassVar[bool]

    def __init__(self, db: Database, name: str, codec: PayloadCodec[T]) -> None:
        self._db = db
        self.name = name
        self._codec = codec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def info(self) -> GroupInfo:
        """Return the group's streams, options and generation.

        Raises:
            NotFound: no such group.
        """
        return group_info(await self._db.read(partial(get_group, name=self.name, share=self._is_share)))

    async def wait_for(self, event: Event[Any], *, timeout_ms: int | None = None) -> None:
        """Return when the group has finished an event, durably: so a program reads what it has just written.

        An event that was truncated, or became a dead letter, counts as finished. Progress of readers and processors
        becomes durable within a second.

        Args:
            event: as a writer, or a reader, returned it.
            timeout_ms: how long to wait, in ms. None (default): without limit.

        Raises:
            NotFound: no such group, or the stream was deleted.
            GroupStreamReplaced: a reader group reads a deleted stream of this name, and does not drop it.
            TimeoutError: the time is over.
            InvalidArgument: the group does not read the stream of the event, or it is no event.

        Cost:
            A few look-ups, again whenever the group made progress durable.
        """
        from eventproc.groups.finished import as_written, wait_finished  # few programs need it

        await wait_finished(self._db, [self.name], as_written(event), timeout_ms)
