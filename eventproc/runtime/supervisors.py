"""The ingestion supervisors of an open directory, by id.

What runs them is imported by the first call, because a program without supervisors must not pay for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_int, check_str, invalid_argument
from eventproc.store.model.list_pages import ListPage

if TYPE_CHECKING:
    from eventproc.ingestion import SupervisorSpec
    from eventproc.ingestion.changes import SpecEffect
    from eventproc.ingestion.status import IngestWorkerInfo
    from eventproc.ingestion.supervisor import Supervisor
    from eventproc.store.ingestion.logs import IngestLogLine


class SupervisorSystem:
    """The part of `Eventproc` that submits and finds supervisors."""

    _db: Database

    async def submit_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> Supervisor:
        """Submit the spec of a supervisor, which ingests streams into a table, and return its handle.

        A new id begins a supervisor. Otherwise the spec replaces the present one; groups whose rows it changes publish
        what they have read, and others go on behind them. The present spec changes nothing.

        Args:
            spec: a `SupervisorSpec`, or the same as plain values, as in a file.

        Raises:
            InvalidSpec: with the path of every value that is not valid, or that would change a column of the table.
            NotFound: a stream that it names does not exist.
            NotSupported: this store lies on a server, and has no place for files.
        """
        from eventproc.ingestion.changes import submit
        from eventproc.ingestion.supervisor import Supervisor
        from eventproc.store.ingestion.pointers import table_store

        if not self._db.in_memory:
            await self._db.read(table_store)  # before anything changes
        valid = _valid(spec)
        await self._db.write(partial(submit, spec=valid), step=Step.SUPERVISOR_CHANGE)
        return Supervisor(self._db, valid.id)

    async def preview_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> SpecEffect:
        """Return what submitting a spec would do, without doing it.

        Args:
            spec: as for `submit_supervisor`.

        Raises:
            InvalidSpec: with the path of every value that is not valid, or that would change a column of the table.
            NotFound: a stream that it names does not exist.
        """
        from eventproc.ingestion.changes import preview

        return await self._db.read(partial(preview, spec=_valid(spec)))

    async def supervisor(self, id: str) -> Supervisor:
        """Return the handle of a supervisor; also of one that was terminated.

        Args:
            id: its id, by default the datasource of its spec.

        Raises:
            NotFound: there never was such a supervisor.
        """
        from eventproc.ingestion.supervisor import Supervisor
        from eventproc.store.ingestion import spec_versions

        check_str("id", id)
        await self._db.read(partial(spec_versions, supervisor=id, limit=1))
        return Supervisor(self._db, id)

    async def ingestion_workers(
        self, *, after: str | None = None, limit: int | None = None
    ) -> list[IngestWorkerInfo]:
        """Return the processes that run the tasks of supervisors, the oldest first; dead ones for an hour.

        Args:
            after: instance of the last worker of the previous page. None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.

        Cost:
            Two queries, over the workers and the running tasks.
        """
        from eventproc.ingestion.status import describe_workers

        look = partial(
            describe_workers, page=ListPage.of(after=after, limit=limit), is_alive=self._db.peers.is_alive
        )
        return await self._db.read(look)

    async def ingestion_log(
        self, task: str, *, after: int | None = None, limit: int | None = None
    ) -> list[IngestLogLine]:
        """Return what an ingestion task has logged, the oldest line first, also after its worker died.

        Its start, what it reads and publishes, its failures and its end. The newest 500 lines are kept, for as long as
        the task is listed, and at most a week.

        Args:
            task: its id, as `Supervisor.tasks` shows it.
            after: id of the last line of the previous page. None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such task, or it is not listed any more.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        from eventproc.ingestion.task_logs import read_lines

        check_str("task", task)
        first = 0 if after is None else check_int("after", after)
        most = None if limit is None else check_int("limit", limit, least=1)
        return (await self._db.read(partial(read_lines, task=task, after=first, limit=most))).lines

    async def follow_ingestion_log(
        self, task: str, *, after: int | None = None
    ) -> AsyncIterator[IngestLogLine]:
        """Yield what an ingestion task has logged, then each new line, until the task has ended.

        Args:
            task: as for `ingestion_log`.
            after: id of the last line that is known. None (default): begin with the oldest.

        Raises:
            NotFound: no such task, or it is not listed any more.
            InvalidArgument: an argument has the wrong type.

        Cost:
            One read a second while nothing is logged.
        """
        from eventproc.ingestion.task_logs import follow_lines

        check_str("task", task)
        first = 0 if after is None else check_int("after", after)
        async for line in follow_lines(self._db, task, first):
            yield line

    async def suspend_supervisors(self) -> list[str]:
        """Suspend all supervisors, in one transaction: their tasks publish and end, and no others are created.

        Returns:
            The ids of those that were not suspended before.
        """
        return await self._change_all(suspended=True)

    async def resume_supervisors(self) -> list[str]:
        """Resume all supervisors, in one transaction: reading goes on at their published offsets.

        Returns:
            The ids of those that were suspended.
        """
        return await self._change_all(suspended=False)

    async def terminate_supervisors(self) -> list[str]:
        """Terminate all supervisors, in one transaction: their tasks publish. History, offsets and tables stay.

        Returns:
            The ids of those that were not terminated before.
        """
        from eventproc.ingestion.changes import change_all, terminate

        return await self._db.write(partial(change_all, change=terminate), step=Step.SUPERVISOR_CHANGE)

    async def _change_all(self, *, suspended: bool) -> list[str]:
        from eventproc.ingestion.changes import change_all, set_suspended

        change = partial(set_suspended, suspended=suspended)
        return await self._db.write(partial(change_all, change=change), step=Step.SUPERVISOR_CHANGE)


def _valid(spec: object) -> SupervisorSpec:
    from eventproc.ingestion import SupervisorSpec

    if isinstance(spec, SupervisorSpec):
        return spec.validate()
    if isinstance(spec, Mapping):
        return SupervisorSpec.of(spec)
    raise invalid_argument("spec", spec, "it must be a SupervisorSpec, or a mapping with its fields")
