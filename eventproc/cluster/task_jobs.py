"""The built-in jobs: offloads, backups, checks, compactions, and deleting large scopes. Each is repeatable."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import attrs

from eventproc.cluster.task_runner import Job, TaskContext
from eventproc.store.catalog import get_stream, list_streams
from eventproc.store.database import FileWork, Tx
from eventproc.store.model.argument_checks import check_str, invalid_argument
from eventproc.store.model.errors import AlreadyExists, CorruptRecord, NotFound, StreamReplaced
from eventproc.store.model.names import check_scope_name
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.model.states import StreamState
from eventproc.store.task_queue import BACKUP
from eventproc.streams.request_calls import run_request
from eventproc.workflows.policies import CompactTopicTask, OffloadTask
from eventproc.workflows.requests import DeleteScope, DeleteStream, SealStream

if TYPE_CHECKING:
    from eventproc.streams.compaction import CompactionResult
    from eventproc.streams.offload import OffloadResult


@attrs.frozen
class BackupTask:
    """Make a verified backup of the directory, as `Eventproc.backup`. Progress counts bytes.

    dest: absolute path of the new folder. Raises InvalidArgument.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = BACKUP
    dest: str

    def __attrs_post_init__(self) -> None:
        if not Path(check_str("dest", self.dest)).is_absolute():
            raise invalid_argument(
                "dest", self.dest, "it must be an absolute path: any instance may run the task"
            )

    @property
    def resource(self) -> str:
        """What no other task works on meanwhile."""
        return "directory"


@attrs.frozen
class DeleteScopeTask:
    """Seal and delete the streams of a scope one by one, then the scope with all that is left in it.

    Progress counts streams. If it is cancelled, what was deleted stays deleted. scope: its name.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "delete-scope"
    scope: str

    def __attrs_post_init__(self) -> None:
        check_scope_name(self.scope)

    @property
    def resource(self) -> str:
        """What no other task works on meanwhile."""
        return f"scope {self.scope}"


@attrs.frozen
class VerifyTask:
    """Check all pages, all invariants and all files of the directory, as `eventproc verify`. Progress counts parts.

    A part is the pages, a stream, the other rows, or a file. A task that finds damage fails, and its error names what
    was found first.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "verify"

    @property
    def resource(self) -> str:
        """What no other task works on meanwhile: nothing but other checks."""
        return "check of the directory"


@attrs.frozen
class CompactTask:
    """Return all free bytes of the database file to the file system, as `Eventproc.compact`. Progress counts bytes."""

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "compact"

    @property
    def resource(self) -> str:
        """What no other task works on meanwhile: nothing but other compactions."""
        return "free space of the directory"


AnyTask: TypeAlias = OffloadTask | BackupTask | DeleteScopeTask | VerifyTask | CompactTask | CompactTopicTask
"""What can be submitted as a task."""

FILE_WORK: Final[Mapping[type[AnyTask], FileWork]] = MappingProxyType(
    {BackupTask: FileWork.BACKUP, CompactTask: FileWork.COMPACTION}
)
"""The tasks that need a directory."""

PROBLEMS_MAX: Final = 10
"""Problems that the error of a failed check names. Higher: longer records; `eventproc verify` prints all."""


async def _offload(ctx: TaskContext) -> Mapping[str, str | int]:
    from eventproc.streams.offload import offload  # few programs need it

    asked = OffloadTask(**ctx.task.arguments)  # type: ignore[arg-type]
    stream_id = (await ctx.db.read(lambda tx: get_stream(tx, asked.stream))).value.stream_id

    def advance(moved: OffloadResult) -> None:
        ctx.progress(moved.bytes)

    # A task that waited, or that another instance continues, moves what was due when it was submitted.
    until_ms = ctx.task.created_ms - asked.older_than_ms
    done = await offload(ctx.db, asked.stream, stream_id, until_ms, write=ctx.write, advance=advance)
    return attrs.asdict(done)


async def _compact_topic(ctx: TaskContext) -> Mapping[str, str | int]:
    from eventproc.streams.compaction import compact_topic  # few programs need it

    topic = str(ctx.task.arguments["topic"])
    stream_id = (await ctx.db.read(lambda tx: get_stream(tx, topic))).value.stream_id

    def advance(removed: CompactionResult) -> None:
        ctx.progress(removed.bytes)

    return attrs.asdict(await compact_topic(ctx.db, topic, stream_id, write=ctx.write, advance=advance))


async def _backup(ctx: TaskContext) -> Mapping[str, str | int]:
    from eventproc.store.backup.contents import read_manifest  # few programs need them
    from eventproc.store.backup.make import make_backup

    dest = Path(str(ctx.task.arguments["dest"]))
    try:
        made = await make_backup(ctx.db, dest, ctx.progress)
    except AlreadyExists:
        if ctx.task.attempt == 1 or read_manifest(dest).created_ms < ctx.task.created_ms:
            raise
        found = read_manifest(dest)  # the last attempt made it, and died before it could say so
        return {"path": str(dest), "created_ms": found.created_ms, "bytes": found.bytes, "files": found.files}
    return {"path": str(made.path), "created_ms": made.created_ms, "bytes": made.bytes, "files": made.files}


async def _verify(ctx: TaskContext) -> Mapping[str, str | int]:
    from eventproc.cluster.integrity_checks import IntegrityReport, verify_directory  # few programs need them

    report = IntegrityReport("directory")
    await verify_directory(ctx.db, report, ctx.progress)
    if report.problems:
        left = len(report.problems) - PROBLEMS_MAX
        more = f"; {left} more: `eventproc verify` prints all" if left > 0 else ""
        raise CorruptRecord(key=ctx.db.name, reason="; ".join(report.problems[:PROBLEMS_MAX]) + more)
    return {"bytes": report.bytes, "files": report.files, "orphans": len(report.orphans)}


async def _compact(ctx: TaskContext) -> Mapping[str, str | int]:
    from eventproc.cluster.compaction import compact  # few programs need it

    return attrs.asdict(await compact(ctx.db, write=ctx.write, advance=ctx.progress))


async def _delete_scope(ctx: TaskContext) -> Mapping[str, str | int]:
    scope = str(ctx.task.arguments["scope"])

    def left(tx: Tx) -> list[tuple[str, int, bool]]:
        return [
            (each.name, each.stream_id, each.state is StreamState.SEALED) for each in list_streams(tx, scope)
        ]

    try:
        streams = await ctx.db.read(left)
        # What a dead attempt deleted last, its progress does not count: the total says how many there were.
        total = max(ctx.total or 0, ctx.done + len(streams))
        for done, (name, stream_id, sealed) in enumerate(streams, total - len(streams)):
            ctx.progress(done, total)
            await ctx.save()
            with suppress(NotFound, StreamReplaced):  # the last attempt deleted it, or somebody else did
                if not sealed:
                    await run_request(ctx.db, SealStream(name, stream_id))
                await run_request(ctx.db, DeleteStream(name, stream_id))
        ctx.progress(total, total)
        await ctx.save()
        await run_request(ctx.db, DeleteScope(scope))
    except NotFound:
        if ctx.total is None:
            raise  # it never existed; otherwise an earlier run of this job deleted it
    return {"streams": ctx.done}


TASK_JOBS: Final[Mapping[str, Job]] = MappingProxyType(
    {
        OffloadTask.kind: _offload,
        BackupTask.kind: _backup,
        DeleteScopeTask.kind: _delete_scope,
        VerifyTask.kind: _verify,
        CompactTask.kind: _compact,
        CompactTopicTask.kind: _compact_topic,
    }
)
"""The jobs that every instance knows, by kind."""
