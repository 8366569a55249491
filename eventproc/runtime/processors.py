"""The processors of an open directory, by the names of their groups: shown, paused and resumed."""

from __future__ import annotations

from eventproc.processors import (
    ProcessorDescription,
    describe_processor,
    describe_processors,
    pause_processor,
)
from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_str
from eventproc.store.model.list_pages import ListPage


class ProcessorSystem:
    """The part of `Eventproc` that shows processors and pauses them. `Eventproc.run` runs them."""

    _db: Database

    async def processors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[ProcessorDescription]:
        """Return the processors and workers that ever ran here, by scope and name of their groups.

        Args:
            prefix: only those whose groups have names in their scopes that begin with it. Default: all.
            after: group of the last processor of the previous page, "scope/group". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        page = ListPage.of(prefix, after, limit)
        return await self._db.read(lambda tx: describe_processors(tx, self._db.peers, page))

    async def processor(self, group: str) -> ProcessorDescription:
        """Return the description of one processor, or worker.

        Args:
            group: its group, "scope/group".

        Raises:
            NotFound: no such group.
            NotAProcessorGroup: the group belongs to readers.
        """
        check_str("group", group)
        return await self._db.read(lambda tx: describe_processor(tx, self._db.peers, group))

    async def pause_processor(self, group: str) -> None:
        """Pause a processor, or a worker, durably, in all processes: running calls end, no other begins.

        Does nothing if the processor is paused.

        Args:
            group: its group, "scope/group".

        Raises:
            NotFound: no such group.
            NotAProcessorGroup: the group belongs to readers.
        """
        check_str("group", group)
        await self._db.write(lambda tx: pause_processor(tx, group, paused=True), step=Step.PROCESSOR_PAUSE)

    async def resume_processor(self, group: str) -> None:
        """Resume a processor that `pause_processor` paused, in all processes.

        Args:
            group: its group, "scope/group".

        Raises:
            NotFound: no such group.
            NotAProcessorGroup: the group belongs to readers.
        """
        check_str("group", group)
        await self._db.write(lambda tx: pause_processor(tx, group, paused=False), step=Step.PROCESSOR_PAUSE)
