"""The handle of a supervisor: everything that can be done with one, by its id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from eventproc.ingestion import changes
from eventproc.ingestion.backfill import backfill, preview_backfill
from eventproc.ingestion.changes import PartitionReset
from eventproc.ingestion.loop import get_situation
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.spec import SupervisorSpec
from eventproc.ingestion.status import (
    IngestTaskInfo,
    SupervisorStatus,
    SupervisorVersion,
    describe_supervisor,
    task_info,
)
from eventproc.ingestion.working_state import Situation
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.ingestion import get_live_spec, read_tasks, spec_versions
from eventproc.store.ingestion.pointers import find_pointer
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.model.argument_checks import check_instance, check_int, check_iterable, check_str
from eventproc.store.model.cuts import StreamCut

T = TypeVar("T")


class Supervisor:
    """A supervisor; made by `submit_supervisor` and `supervisor`."""

    def __init__(self, db: Database, id: str) -> None:
        self._db = db
        self.id = id

    def __repr__(self) -> str:
        return f"Supervisor({self.id!r})"

    async def spec(self) -> SupervisorSpec:
        """Return the present spec.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        found = await self._db.read(partial(get_live_spec, supervisor=self.id))
        return SupervisorSpec.parse(found.text or "")

    async def status(self) -> SupervisorStatus:
        """Return what the supervisor does now: state, partitions with their lag, tasks, errors.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.

        Cost:
            Two look-ups per segment of its streams.
        """

        return await self._db.read(lambda tx: describe_supervisor(self._situation(tx)))

    async def tasks(self) -> list[IngestTaskInfo]:
        """Return the tasks with their reports, the oldest first; of those that ended, the last 200.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.
        """

        def look(tx: Tx) -> list[IngestTaskInfo]:
            situation = self._situation(tx)
            return [task_info(situation, each) for each in read_tasks(tx, self.id)]

        return await self._db.read(look)

    async def history(self, *, after: int | None = None, limit: int | None = None) -> list[SupervisorVersion]:
        """Return the versions of the spec, the newest first.

        Args:
            after: number of the last version of the previous page. None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such supervisor.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        before = None if after is None else check_int("after", after)
        most = None if limit is None else check_int("limit", limit, least=1)
        look = partial(spec_versions, supervisor=self.id, before=before, limit=most)
        found = await self._db.read(look)
        return [SupervisorVersion.of(each) for each in found]

    async def lags(self) -> list[LagSample]:
        """Return the history of the lag, the oldest sample first: events behind, of all partitions.

        It reaches back to the beginning of the supervisor. There are at most 240 samples; they are 30 s apart at first,
        and twice as far whenever there would be more.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.
        """
        return list((await self._db.read(self._situation)).memory.lags)

    async def plot(self, path: str | Path) -> None:
        """Draw the history of the lag, and the files of the table over the timeline. Needs the extra `plot`.

        Args:
            path: of the picture, which ends with .png, .svg or .pdf. An existing file is replaced.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.
            InvalidArgument: the path has another suffix.
            NotSupported: matplotlib is not installed.
            OSError: the file cannot be written.

        Cost:
            Reads the row of each used file of the table. Drawing takes about a second, in a thread.
        """
        from eventproc.ingestion.plot import check_picture, draw

        target = Path(path)
        await anyio.to_thread.run_sync(check_picture, target)

        found = await self._db.read(self._situation)
        table = found.spec.schema.datasource
        has_rows = await self._db.read(partial(find_pointer, name=table)) is not None
        files = await on_tables(self._db, lambda tables: tables.used(table)) if has_rows else []
        await anyio.to_thread.run_sync(partial(draw, target, self.id, table, found.memory.lags, files))

    def _situation(self, tx: Tx) -> Situation:
        return get_situation(tx, self.id, self._db.peers.is_alive)

    async def suspend(self) -> None:
        """Let the tasks publish and end, and create no others until `resume`. Does nothing if it is suspended.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        await self._change(partial(changes.set_suspended, supervisor=self.id, suspended=True))

    async def resume(self) -> None:
        """Undo `suspend`: reading goes on at the published offsets. Does nothing if it is not suspended.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        await self._change(partial(changes.set_suspended, supervisor=self.id, suspended=False))

    async def handoff(self, groups: Sequence[int] | None = None) -> None:
        """Let groups publish what they have read now; others go on behind them.

        Args:
            groups: numbers of groups that read. None (default): all of them.

        Raises:
            NotFound: no such supervisor, or it was terminated; or a group does not read. Then nothing changes.
            InvalidArgument: a number is not valid.
        """
        if groups is not None:
            given = check_iterable("groups", groups, "it must be numbers of groups")
            groups = [check_int("group", each, least=0) for each in given]
        await self._change(partial(changes.hand_off, supervisor=self.id, groups=groups))

    async def reset(self, to: StreamCut | Sequence[StreamCut] | None = None) -> None:
        """Read again from another position. What was published stays, so that events before it are counted again.

        Groups that read or publish the affected partitions are dropped; others go on.

        Args:
            to: a cut of a stream that is read, or several; only the segments of the cuts move. None (default): forget
                all offsets, and begin as the spec says for a first run, or at the starts of its ranges.

        Raises:
            NotFound: no such supervisor, or it was terminated.
            InvalidCut: a cut is not one of a stream that the supervisor reads, lies inside an event, or outside of the
                ranges of a bounded supervisor.
            InvalidArgument: `to` is no cut.
        """
        await self._change(partial(changes.reset, supervisor=self.id, cuts=_cuts(to)))

    async def preview_reset(self, to: StreamCut | Sequence[StreamCut] | None = None) -> list[PartitionReset]:
        """Return the segments that `reset` would move now, without moving them.

        Args:
            to: as for `reset`.

        Raises:
            NotFound: as for `reset`.
            InvalidCut: as for `reset`.
            InvalidArgument: as for `reset`.
        """
        return await self._db.read(partial(changes.preview_reset, supervisor=self.id, cuts=_cuts(to)))

    async def backfill(self, id: str | None = None, *, task_count: int | None = None) -> Supervisor:
        """Go on with what is written from now on, and let a bounded supervisor publish what is behind.

        Groups that have read some of it are dropped; the bounded supervisor reads their ranges again. It publishes to
        the same table, holds its events against truncation, and is completed when everything is published.

        Args:
            id: of the bounded supervisor. None (default): this one's with "-backfill-" and a number.
            task_count: groups of the bounded supervisor. None (default): as many as this one began with.

        Returns:
            The handle of the bounded supervisor.

        Raises:
            NotFound: no such supervisor, or it was terminated.
            BackfillRefused: it is suspended or bounded, has nothing to publish, or the id is in use.
            InvalidSpec: the id or the task count is not valid.

        Cost:
            One transaction, with some look-ups per segment that has unpublished events.
        """
        change = self._of_backfill(backfill, id, task_count)
        return Supervisor(self._db, await self._db.write(change, step=Step.SUPERVISOR_CHANGE))

    async def preview_backfill(
        self, id: str | None = None, *, task_count: int | None = None
    ) -> SupervisorSpec:
        """Return the spec of the bounded supervisor that `backfill` would begin now, without beginning it.

        Args:
            id: as for `backfill`.
            task_count: as for `backfill`.

        Raises:
            NotFound: no such supervisor, or it was terminated.
            BackfillRefused: as for `backfill`.
            InvalidSpec: as for `backfill`.
        """
        return await self._db.read(self._of_backfill(preview_backfill, id, task_count))

    def _of_backfill(
        self,
        step: Callable[[Tx, str, Callable[[str], bool], str | None, int | None], T],
        id: str | None,
        task_count: int | None,
    ) -> Callable[[Tx], T]:
        if id is not None:
            check_str("id", id)
        if task_count is not None:
            check_int("task_count", task_count, least=1)
        return lambda tx: step(tx, self.id, self._db.peers.is_alive, id, task_count)

    async def terminate(self) -> None:
        """Let the tasks publish, and end the supervisor. Its history, offsets and table stay.

        Submitting a spec of the same id begins it again, at its offsets.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        await self._change(partial(changes.terminate, supervisor=self.id))

    async def _change(self, change: Callable[[Tx], object]) -> None:
        await self._db.write(change, step=Step.SUPERVISOR_CHANGE)


def _cuts(to: StreamCut | Sequence[StreamCut] | None) -> list[StreamCut] | None:
    """Return the cuts of a reset. Raises InvalidArgument."""
    if to is None:
        return None
    cuts = [to] if isinstance(to, StreamCut) else check_iterable("to", to, "it must be cuts")
    return [
        check_instance(StreamCut, "to", each, "it must be a StreamCut, such as `await stream.head()`")
        for each in cuts
    ]
