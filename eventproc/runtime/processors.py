"""The processors of an open directory, by the names of their groups: shown, paused and resumed; the tables of apps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eventproc.processors import (
    AppTx,
    ProcessorDescription,
    describe_processor,
    pause_processor,
)
from eventproc.processors.context import call_in_tx
from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_function, check_str

R = TypeVar("R")


class ProcessorSystem:
    """The part of `Eventproc` that shows processors, pauses them, and changes the tables of apps. `run` runs them."""

    _db: Database

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

    async def change_tables(self, function: Callable[[AppTx], R]) -> R:
        """Call a function in a transaction of the store, and return what it returns.

        It changes the tables of apps, whose names begin with `app_`, and emits events: all of it, or nothing. It may
        be called again after an error that is transient, so it must change nothing else.

        Args:
            function: a plain function of an `AppTx`. It runs on the thread of the database, so it must be short.

        Raises:
            InvalidArgument: it is not a plain function.
            NotSupported: one of its statements is not allowed.
            NotFound: a stream that it emits to does not exist.
            StreamSealed: such a stream is sealed.
            Exception: whatever the function raises.

        Cost:
            One commit, shared with others of the moment.
        """
        check_function("change_tables", function)
        found, _ = await self._db.write(lambda tx: call_in_tx(tx, function), step=Step.TABLES_CHANGE)
        return found
