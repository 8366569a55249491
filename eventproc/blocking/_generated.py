"""Methods of the blocking twin that only hand a call to the loop. Written by `python -m tools.blocking`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from eventproc.blocking.loop import Loop
from eventproc.groups.changes import SAME
from eventproc.groups.group import CHECKPOINT_WAIT_MS
from eventproc.processors.dead_letters.operations import LIST_MAX
from eventproc.processors.run import GRACE_MS
from eventproc.store.groups import SHARE_POLL_EVENTS
from eventproc.store.model.limits import TXNS_LISTED_MAX
from eventproc.streams.queries import PAGE_ENTRIES
from eventproc.streams.request_calls import WAIT_MS

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from eventproc.cluster import AnyTask, CompactResult
    from eventproc.cluster.membership import Cluster, ClusterDescription, ClusterInstance
    from eventproc.groups import GroupInfo
    from eventproc.groups.changes import Same
    from eventproc.groups.describe import GroupDescription
    from eventproc.groups.group import ReaderGroup
    from eventproc.groups.operations import GroupCheckpoint, OffsetReset, OffsetTarget
    from eventproc.groups.start_positions import GroupResetEnd, GroupStart
    from eventproc.ingestion.memory import LagSample
    from eventproc.ingestion.spec import SupervisorSpec
    from eventproc.ingestion.status import IngestTaskInfo, SupervisorStatus, SupervisorVersion
    from eventproc.ingestion.supervisor import Supervisor
    from eventproc.processors import ProcessorDescription
    from eventproc.processors.dead_letters.dead_letter import DeadLetter
    from eventproc.processors.dead_letters.operations import DeadLetters, Ids, LetterCount
    from eventproc.processors.observe.status import ProcessorStatus
    from eventproc.processors.run import Running
    from eventproc.runtime.requests import Requests
    from eventproc.runtime.system import Eventproc
    from eventproc.runtime.tasks import Tasks
    from eventproc.runtime.users import NewToken, UserInfo, Users
    from eventproc.shares.consumer import P, ShareConsumer
    from eventproc.shares.describe import ShareGroupDescription, ShareGroupInfo
    from eventproc.shares.events import SharedEvent
    from eventproc.shares.group import ShareGroup
    from eventproc.store.access.permissions import Permission
    from eventproc.store.backup.results import BackupResult
    from eventproc.store.catalog import StreamSize
    from eventproc.store.database import SqlParameters, SqlValue
    from eventproc.store.groups import GroupOptions, RetainedPart, TruncatedPolicy
    from eventproc.store.model.cuts import CutOrder, StreamCut
    from eventproc.store.model.epochs import Epoch
    from eventproc.store.model.ids import SegmentId
    from eventproc.store.model.policies import RetentionPolicy, ScalingPolicy
    from eventproc.store.requests import Request
    from eventproc.store.task_queue import TaskInfo
    from eventproc.streams import ScopeInfo, StreamInfo
    from eventproc.streams.description import (
        MeasuredPart,
        PastScale,
        SegmentDescription,
        StreamDescription,
        TransactionDescription,
        TruncationDescription,
    )
    from eventproc.streams.offload import OffloadResult
    from eventproc.streams.partitioners import Partitioner
    from eventproc.streams.queries import Moment, SegmentName
    from eventproc.streams.stream import RangeName, Stream
    from eventproc.topics import TopicInfo
    from eventproc.topics.consumer import Consumer, PartitionRef
    from eventproc.topics.description import PartitionDescription, TopicDescription
    from eventproc.topics.group import ConsumerGroup
    from eventproc.topics.offsets import ConsumerGroupDescription, PartitionOffsets
    from eventproc.topics.topic import Strategy, Topic
    from eventproc.workflows.requests import AnyRequest


class EventprocCalls:
    """The coroutine methods of `Eventproc`, without `await`."""

    def __init__(self, loop: Loop, twin: Eventproc) -> None:
        self._loop = loop
        self._twin = twin

    def query(self, sql: str, parameters: SqlParameters = ()) -> list[tuple[SqlValue, ...]]:
        """Read with SQL: the tables of apps, whose names begin with `app_`.

        Other tables may change with any version.

        Args:
            sql: one SELECT.
            parameters: values of its placeholders. Default: none.

        Returns:
            All rows.

        Raises:
            InvalidArgument: the statement or its parameters are not valid, or it would change something.
            NotSupported: the statement is not allowed, such as PRAGMA and COMMIT.

        Cost:
            One snapshot. All rows are in memory.
        """
        return self._loop.call(self._twin.query, sql, parameters)

    def create_scope(self, name: str) -> None:
        """Create a scope; does nothing if it exists.

        Args:
            name: the scope's name, unique in the directory.

        Raises:
            InvalidArgument: the name is not valid.
            IllegalTransition: a scope of that name is being deleted.
        """
        self._loop.call(self._twin.create_scope, name)

    def delete_scope(
        self, name: str, *, recursive: bool = False, request_id: str | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """Delete a scope.

        Args:
            name: the scope's name.
            recursive: delete its reader groups, synchronizers and streams first. Default: an empty scope only.
            request_id: for a recursive delete: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call
                with the same id returns what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome of a recursive delete, in ms. Default: 120 s.

        Raises:
            NotFound: no such scope.
            ScopeNotEmpty: the scope has streams, reader groups or synchronizers, and `recursive` is False.
            IllegalTransition: the scope is being deleted.
            InvalidArgument: an id is given without `recursive`, or an argument is not valid.
            StillPending: the wait ended first; the deletion goes on.
        """
        self._loop.call(
            partial(
                self._twin.delete_scope,
                name,
                recursive=recursive,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def scopes(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[ScopeInfo]:
        """Return the scopes, by name.

        Args:
            prefix: only those whose names begin with it. Default: all.
            after: name of the last scope of the previous page. None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(partial(self._twin.scopes, prefix=prefix, after=after, limit=limit))

    def streams(
        self,
        scope: str | None = None,
        *,
        tag: str | None = None,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[StreamInfo]:
        """Return the streams, by scope and name; topics are among them.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            tag: only those with this tag. None (default): with any.
            prefix: only those whose names in their scopes begin with it. Default: all.
            after: name of the last stream of the previous page, "scope/stream". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(
            partial(self._twin.streams, scope, tag=tag, prefix=prefix, after=after, limit=limit)
        )

    def reader_groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[GroupInfo]:
        """Return the groups, by scope and name, those of processors included.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            prefix: only those whose names in their scopes begin with it. Default: all.
            after: name of the last group of the previous page, "scope/group". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(
            partial(self._twin.reader_groups, scope, prefix=prefix, after=after, limit=limit)
        )

    def synchronizers(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return the names of the shared objects, by scope and name.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            prefix: only those whose names in their scopes begin with it. Default: all.
            after: the last name of the previous page, "scope/name". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(
            partial(self._twin.synchronizers, scope, prefix=prefix, after=after, limit=limit)
        )

    def delete_synchronizer(self, name: str) -> None:
        """Delete a shared object. Its members get NotFound from then on.

        Args:
            name: "scope/name" of the object.

        Raises:
            NotFound: it does not exist.
        """
        self._loop.call(self._twin.delete_synchronizer, name)

    def backup(self, dest: str | PathLike[str]) -> BackupResult:
        """Make a verified backup of the directory in a new folder, while all processes go on reading and writing.

        The backup is the state of one moment: everything that was acknowledged before the call, files with events
        included. `eventproc restore` makes a directory of it.

        Args:
            dest: the new folder. The folder above it must exist.

        Raises:
            AlreadyExists: the folder exists.
            StoreUnusable: the folder cannot be written, or lies in the directory itself.
            DiskFull: there is no space left; nothing remains.
            CorruptRecord: the database or a file with events is damaged.
            NotSupported: this system lies in memory.
            InvalidArgument: `dest` is not a path.

        Cost:
            Reads and writes the size of the directory. Meanwhile the log of the database grows by what is written.
        """
        return self._loop.call(self._twin.backup, dest)

    def compact(self) -> CompactResult:
        """Return the bytes of truncated and deleted events to the file system now, and what else of the file is free.

        A process that may be the host does it in the background, and leaves up to 64 MiB for the next events. Writers
        go on meanwhile: each step takes some ms. Bytes that Spark or a backup reads stay.

        Returns:
            The size of the database file before and after.

        Raises:
            NotSupported: this system lies in memory, or another tool has made a file that cannot shrink.
            DiskFull: there is no space left for the log of a step; what was returned before stays so.
            CorruptRecord: a record of a truncated or deleted stream is damaged.

        Cost:
            About 20 us for each free page of 16 KiB. The log of the database grows by at most 32 MiB, or by what is
            returned while a read goes on.
        """
        return self._loop.call(self._twin.compact)

    def export_metadata(self, write: Callable[[str], object]) -> int:
        """Pass the metadata of the directory to `write`, one JSON document a line, all of one moment.

        The lines are scopes, streams with their epochs, groups, transactions, requests, tasks, and supervisors; events
        are not among them. `docs/design/metadata-export.md` lists their fields. The last line tells how many there are.

        Args:
            write: called with each line, which ends with a line feed, such as the `write` of a text file. It is called
                on a thread of the database and must not use this system.

        Returns:
            The number of lines.

        Raises:
            InvalidArgument: `write` cannot be called.
            Exception: whatever it raises.

        Cost:
            Reads all metadata once, page by page. Meanwhile the log of the database grows by what is written.
        """
        return self._loop.call(self._twin.export_metadata, write)

    def processors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[ProcessorDescription]:
        """Return the processors that ever ran here, by scope and name of their groups, with processes, lag and members.

        Args:
            prefix: only those whose groups have names in their scopes that begin with it. Default: all.
            after: group of the last processor of the previous page, "scope/group". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(partial(self._twin.processors, prefix=prefix, after=after, limit=limit))

    def processor(self, group: str) -> ProcessorDescription:
        """Return the description of one processor.

        Args:
            group: its group, "scope/group".

        Raises:
            NotFound: no such group.
            NotAProcessorGroup: the group belongs to readers.
        """
        return self._loop.call(self._twin.processor, group)

    def pause_processor(self, group: str) -> None:
        """Pause a processor durably, in all processes: running calls end, no other begins.

        Does nothing if the processor is paused.

        Args:
            group: its group, "scope/group".

        Raises:
            NotFound: no such group.
            NotAProcessorGroup: the group belongs to readers.
        """
        self._loop.call(self._twin.pause_processor, group)

    def resume_processor(self, group: str) -> None:
        """Undo `pause_processor`.

        Args:
            group: its group, "scope/group".

        Raises:
            NotFound: no such group.
            NotAProcessorGroup: the group belongs to readers.
        """
        self._loop.call(self._twin.resume_processor, group)

    def topics(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[TopicInfo]:
        """Return the topics, by scope and name.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            prefix: only those whose names in their scopes begin with it. Default: all.
            after: name of the last topic of the previous page, "scope/topic". None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.

        Cost:
            Reads the streams from the first to the last topic returned.
        """
        return self._loop.call(partial(self._twin.topics, scope, prefix=prefix, after=after, limit=limit))


class RequestsCalls:
    """The coroutine methods of `Requests`, without `await`."""

    def __init__(self, loop: Loop, twin: Requests) -> None:
        self._loop = loop
        self._twin = twin

    def submit(
        self,
        request: AnyRequest,
        *,
        request_id: str | None = None,
        within_ms: int | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> Request:
        """Record a request without waiting for its outcome, and return it.

        If an equal request is pending, this call joins it and returns that one, under its id.

        Args:
            request: one of `eventproc.workflows.requests`, such as `SealStream`.
            request_id: a UUID version 7, such as `new_id` makes. Repeating a call with the same id returns what
                became of the first call. None (default): a new id.
            within_ms: how long from now the request may begin, in ms; after that its outcome is Expired. None
                (default): no limit.
            timeout_ms: how long to wait until it is recorded, in ms, while another process holds the write lock.
                Default: 120 s.

        Raises:
            InvalidArgument: the request or an option is not valid.
            LockHeld: the wait for the write lock ended; nothing was recorded.
            InProgress: another request of this kind is running on the object.
            Expired: the id is older than a day.
            Rejected: a subclass says why the request is refused immediately.
        """
        return self._loop.call(
            partial(
                self._twin.submit, request, request_id=request_id, within_ms=within_ms, timeout_ms=timeout_ms
            )
        )

    def get(self, request_id: str) -> Request:
        """Return a request and what became of it.

        Args:
            request_id: its id, or the id of a request that joined it.

        Raises:
            NotFound: no request has that id, or it ended more than a day ago.
        """
        return self._loop.call(self._twin.get, request_id)

    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[Request]:
        """Return the newest requests, newest first.

        Args:
            limit: how many at most. Default: 100.
            after: id of the last request of the previous page. None (default): the first page.

        Raises:
            InvalidArgument: `limit` is less than 1, or an argument has the wrong type.
        """
        return self._loop.call(partial(self._twin.list, limit=limit, after=after))

    def wait(self, request_id: str, *, timeout_ms: int = WAIT_MS) -> Request:
        """Return a request once it is done or rejected, in whichever process it runs.

        Args:
            request_id: its id.
            timeout_ms: how long to wait, in ms. Default: 120 s.

        Raises:
            NotFound: no request has that id.
            StillPending: the wait ended first; the request goes on.
        """
        return self._loop.call(partial(self._twin.wait, request_id, timeout_ms=timeout_ms))


class TasksCalls:
    """The coroutine methods of `Tasks`, without `await`."""

    def __init__(self, loop: Loop, twin: Tasks) -> None:
        self._loop = loop
        self._twin = twin

    def submit(self, task: AnyTask, *, task_id: str | None = None) -> TaskInfo:
        """Store a task, and return it without waiting. An instance that may host runs it until it ends.

        Without `task_id`, an equal task that has not ended, and was not asked to end, is returned instead. Tasks of one
        resource run one after the other.

        Args:
            task: an `OffloadTask`, `BackupTask`, `DeleteScopeTask`, `VerifyTask` or `CompactTask`.
            task_id: a UUID version 7. Repeating a call with the same id returns the same task, for a day after its
                end. None (default): a new id.

        Raises:
            InvalidArgument: the task or the id is not valid, or the id belongs to another task.
        """
        return self._loop.call(partial(self._twin.submit, task, task_id=task_id))

    def get(self, task_id: str) -> TaskInfo:
        """Return a task, and how far it is.

        Args:
            task_id: its id.

        Raises:
            NotFound: no task has that id, or it ended more than a day ago.
        """
        return self._loop.call(self._twin.get, task_id)

    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[TaskInfo]:
        """Return the newest tasks, newest first.

        Args:
            limit: how many at most. Default: 100.
            after: id of the last task of the previous page. None (default): the first page.

        Raises:
            InvalidArgument: `limit` is less than 1, or an argument has the wrong type.
        """
        return self._loop.call(partial(self._twin.list, limit=limit, after=after))

    def cancel(self, task_id: str) -> TaskInfo:
        """Ask a task to end, and return it. What it has made durable stays; one that has ended stays as it is.

        Args:
            task_id: its id.

        Raises:
            NotFound: no task has that id.
        """
        return self._loop.call(self._twin.cancel, task_id)

    def wait(self, task_id: str, *, timeout_ms: int = WAIT_MS) -> TaskInfo:
        """Return a task once it has ended, in whichever process it runs: done, failed or cancelled.

        Args:
            task_id: its id.
            timeout_ms: how long to wait, in ms. Default: 120 s.

        Raises:
            NotFound: no task has that id.
            StillPending: the wait ended first; the task goes on.
        """
        return self._loop.call(partial(self._twin.wait, task_id, timeout_ms=timeout_ms))


class UsersCalls:
    """The coroutine methods of `Users`, without `await`."""

    def __init__(self, loop: Loop, twin: Users) -> None:
        self._loop = loop
        self._twin = twin

    def add(self, name: str, *, password: str | None = None) -> UserInfo:
        """Add a user, who may do nothing yet.

        Args:
            name: 1 to 255 letters, digits, or . _ @ -; the first one is a letter or digit.
            password: at least 8 characters. None (default): the user has tokens only.

        Raises:
            AlreadyExists: there is a user of that name.
            InvalidArgument: the name or the password is not valid, or the directory has 1,000 users.
            NotSupported: there is a password, and the extra `server` is not installed.

        Cost:
            With a password, 0.2 s of CPU time in a thread, and 64 MiB.
        """
        return self._loop.call(partial(self._twin.add, name, password=password))

    def get(self, name: str) -> UserInfo:
        """Return a user.

        Args:
            name: its name.

        Raises:
            NotFound: there is no such user.
        """
        return self._loop.call(self._twin.get, name)

    def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> builtins.list[UserInfo]:
        """Return the users by name.

        Args:
            prefix: only those whose names begin with it. Default: all.
            after: name of the last user of the previous page. None (default): the first page.
            limit: how many to return at most. None (default): all, at most 1,000.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(partial(self._twin.list, prefix=prefix, after=after, limit=limit))

    def delete(self, name: str) -> None:
        """Delete a user with its grants and tokens.

        Running servers continue to ask for credentials when the last user is deleted.

        Args:
            name: its name.

        Raises:
            NotFound: there is no such user.
        """
        self._loop.call(self._twin.delete, name)

    def set_password(self, name: str, password: str | None) -> None:
        """Change the password of a user.

        Args:
            name: the user.
            password: at least 8 characters. None: the user has no password any more, and keeps its tokens.

        Raises:
            NotFound: there is no such user.
            InvalidArgument: the password is too short or too long.
            NotSupported: there is a password, and the extra `server` is not installed.

        Cost:
            With a password, 0.2 s of CPU time in a thread, and 64 MiB.
        """
        self._loop.call(self._twin.set_password, name, password)

    def grant(self, name: str, permission: Permission, pattern: str) -> UserInfo:
        """Give a user a permission on a pattern, in place of the one that it has there, and return the user.

        Args:
            name: the user.
            permission: READ shows and reads; READ_UPDATE also writes, changes and deletes.
            pattern: SCOPE/NAME for a stream, a reader group or a table; SCOPE for listing, creating and deleting what
                is in a scope; or `*` for everything. In names, `*` stands for any characters.

        Raises:
            NotFound: there is no such user.
            InvalidArgument: the permission or the pattern is not valid, or the user has 1,000 grants.
        """
        return self._loop.call(self._twin.grant, name, permission, pattern)

    def revoke(self, name: str, pattern: str) -> UserInfo:
        """Take away what `grant` gave a user on exactly this pattern, and return the user.

        Args:
            name: the user.
            pattern: as it was given.

        Raises:
            NotFound: there is no such user, or it has no such grant.
        """
        return self._loop.call(self._twin.revoke, name, pattern)

    def add_token(self, name: str, token: str, *, life_ms: int | None = None) -> NewToken:
        """Make a token for a user, and return it; its text cannot be shown again.

        A program sends the text as `Authorization: Bearer TEXT`, or in place of the user's password.

        Args:
            name: the user.
            token: the name of the token, of the same characters as that of a user.
            life_ms: how long it is valid, in ms, up to 100 years. None (default): until it is deleted.

        Raises:
            NotFound: there is no such user.
            InvalidArgument: an argument is not valid, or the user has a token of that name, or 100 tokens.
        """
        return self._loop.call(partial(self._twin.add_token, name, token, life_ms=life_ms))

    def delete_token(self, name: str, token: str) -> None:
        """Delete a token of a user.

        Args:
            name: the user.
            token: the name of the token.

        Raises:
            NotFound: there is no such user, or it has no such token.
        """
        self._loop.call(self._twin.delete_token, name, token)


class ClusterCalls:
    """The coroutine methods of `Cluster`, without `await`."""

    def __init__(self, loop: Loop, twin: Cluster) -> None:
        self._loop = loop
        self._twin = twin

    def list(self) -> builtins.list[ClusterInstance]:
        """Return the instances that are alive, oldest first. A suspended one is alive."""
        return self._loop.call(self._twin.list)

    def describe(self) -> ClusterDescription:
        """Return the instances, the host, and the owners of the buckets."""
        return self._loop.call(self._twin.describe)


class StreamCalls:
    """The coroutine methods of `Stream`, without `await`."""

    def __init__(self, loop: Loop, twin: Stream[Any]) -> None:
        self._loop = loop
        self._twin = twin

    def transactions(
        self, *, finished: bool = False, after: str | None = None, limit: int = TXNS_LISTED_MAX
    ) -> list[TransactionDescription]:
        """Return the transactions under way: open, committing and aborting; the oldest first.

        Args:
            finished: return those that ended instead, the newest first; those of Pravega's clients come last. They are
                kept for a day, and at most the last 100,000 commits and 10,000 aborts of a stream.
            after: id of the last transaction of the previous page. None (default): the first page.
            limit: how many to return at most. Default: 500.

        Raises:
            InvalidArgument: the limit is not a positive int, or `after` is not a str.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(partial(self._twin.transactions, finished=finished, after=after, limit=limit))

    def update(
        self,
        *,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Iterable[str] | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> None:
        """Change the stream's configuration, and scale to the number of segments that it asks for.

        Args:
            scaling: the new scaling policy. None (default): as now.
            retention: the new retention policy; `RetentionPolicy()` keeps everything. None (default): as now.
            tags: the new tags, instead of all present ones. None (default): as now.
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            InvalidArgument: a policy or a tag is not valid.
            ScaleRefused: the stream is a topic, and `scaling` is not for topics.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another update is running.
            StillPending: the wait ended first; the update goes on.
        """
        self._loop.call(
            partial(
                self._twin.update,
                scaling=scaling,
                retention=retention,
                tags=tags,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def scale(
        self,
        *,
        seal: Sequence[SegmentName],
        ranges: Sequence[RangeName],
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> tuple[SegmentId, ...]:
        """Seal active segments and open new ones over exactly their key space; return the new ids.

        Args:
            seal: the segments to seal, by id or text such as "2.1".
            ranges: key ranges of the new segments, as pairs or text such as "0.25-0.5".
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            ScaleRefused: a segment is not active, or too few or too many would remain.
            InvalidArgument: the ranges do not cover the sealed segments' key space exactly.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            StillPending: the wait ended first; the scale goes on.
        """
        return self._loop.call(
            partial(
                self._twin.scale,
                seal=seal,
                ranges=ranges,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def split(
        self,
        segment: SegmentName,
        into: int = 2,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> tuple[SegmentId, ...]:
        """Split an active segment into equal parts; return their ids.

        Args:
            segment: its id, or text such as "2.1".
            into: number of parts. Default: 2.
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            NotFound: the segment is not active.
            InvalidArgument: the number of parts is not valid.
            ScaleRefused: another scale sealed the segment meanwhile, or too many segments would result.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            StillPending: the wait ended first; the split goes on.
        """
        return self._loop.call(
            partial(
                self._twin.split,
                segment,
                into,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def merge(
        self,
        *segments: SegmentName,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> SegmentId:
        """Merge neighbouring active segments; return the new id.

        Args:
            segments: two or more, by id or text such as "2.1".
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            NotFound: a segment is not active.
            InvalidArgument: the segments are fewer than two, or not neighbours.
            ScaleRefused: another scale sealed a segment meanwhile, or too few segments would remain.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            StillPending: the wait ended first; the merge goes on.
        """
        return self._loop.call(
            partial(
                self._twin.merge,
                *segments,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def truncate(
        self,
        cut: StreamCut,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> None:
        """Move the head to `cut`: the events before it are gone.

        Args:
            cut: a cut of this stream, at or after the head.
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            InvalidCut: the cut is one of another stream, before the head, beyond the tail, or inside an event.
            StreamReplaced: the stream of the cut, usually that of this handle, was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another truncation is running.
            StillPending: the wait ended first; the truncation goes on.
        """
        self._loop.call(
            partial(
                self._twin.truncate, cut, if_version=if_version, request_id=request_id, timeout_ms=timeout_ms
            )
        )

    def seal(
        self, *, if_version: int | None = None, request_id: str | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """End the stream permanently: no more appends; reading goes on. Does nothing if the stream is sealed.

        Args:
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StillPending: the wait ended first; the seal goes on.
        """
        self._loop.call(
            partial(self._twin.seal, if_version=if_version, request_id=request_id, timeout_ms=timeout_ms)
        )

    def delete(
        self, *, if_version: int | None = None, request_id: str | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """Delete the sealed stream.

        Args:
            if_version: the version that the stream must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            StreamNotSealed: seal it first.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StillPending: the wait ended first; the deletion goes on.
        """
        self._loop.call(
            partial(self._twin.delete, if_version=if_version, request_id=request_id, timeout_ms=timeout_ms)
        )

    def offload(self, *, older_than_ms: int = 0) -> OffloadResult:
        """Move old events out of the database into files, and return how many. They are read as before.

        Runs of less than 256 KiB stay in the database. Needs pyarrow: `pip install 'eventproc[spark]'`.

        Args:
            older_than_ms: age of the events to move, in ms. Default: all.

        Raises:
            NotSupported: pyarrow is not installed, or the system is in memory.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            Truncated: the stream was deleted meanwhile.
            CorruptRecord: a stored event is damaged.
            DiskFull: no space for a file.
            OSError: a file cannot be written.

        Cost:
            Reads and writes the events once, with short transactions in between.
        """
        return self._loop.call(partial(self._twin.offload, older_than_ms=older_than_ms))

    def describe(self) -> StreamDescription:
        """Return the stream's state, segments, ends and sizes, all of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.describe)

    def head(self) -> StreamCut:
        """Return the earliest readable cut.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.head)

    def tail(self) -> StreamCut:
        """Return the cut after the last event; all segments of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.tail)

    def cut_at(self, time_ms: int) -> StreamCut:
        """Return the cut before the events that were appended at or after a time; the head where that is later.

        Args:
            time_ms: wall time, in ms since 1970.

        Raises:
            InvalidArgument: the time is not an int.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.cut_at, time_ms)

    def segments(self, at: Moment = "tail", *, epoch: int | None = None) -> list[SegmentDescription]:
        """Return the segments of one moment of the stream's life, in the order of their key ranges.

        Those of the head are all segments of its cut, also those that begin after it. Their `head` and `tail` are of
        now.

        Args:
            at: "tail" (default): the active segments; of a sealed stream, those that were active last. "head": those
                in which a reader from the head begins. A time, in ms since 1970: those that were active then, or in
                the oldest epoch kept if that began later.
            epoch: the number of an epoch, instead of `at`: those of that epoch. None (default): as `at` says.

        Raises:
            NotFound: the stream has no such epoch yet.
            HistoryCompacted: the epoch is older than the oldest one kept.
            InvalidArgument: `at` is none of them, or both are given.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(partial(self._twin.segments, at, epoch=epoch))

    def segment(self, segment: SegmentName) -> SegmentDescription:
        """Return one segment, active or sealed.

        Args:
            segment: its id, or text such as "2.1".

        Raises:
            NotFound: the stream never had it.
            HistoryCompacted: it was sealed before the oldest epoch kept.
            InvalidArgument: the id is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.segment, segment)

    def sealed_segments(
        self, *, after: SegmentName | None = None, limit: int = PAGE_ENTRIES
    ) -> list[SegmentDescription]:
        """Return sealed segments with their final sizes, by id: the older ones first.

        Args:
            after: the last segment of the previous page, by id or text. None (default): the first page.
            limit: how many to return at most. Default: 1000.

        Raises:
            InvalidArgument: an argument is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(partial(self._twin.sealed_segments, after=after, limit=limit))

    def successors(self, segment: SegmentName) -> dict[SegmentId, tuple[SegmentId, ...]]:
        """Return the segments that replaced a segment, each with all its predecessors; empty for an active segment.

        A reader may open a successor after it has read all those predecessors to their ends.

        Args:
            segment: its id, or text such as "2.1".

        Raises:
            NotFound: the stream never had it.
            HistoryCompacted: it was sealed before the oldest epoch kept.
            InvalidArgument: the id is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.successors, segment)

    def predecessors(self, segment: SegmentName) -> tuple[SegmentId, ...]:
        """Return the segments that a segment replaced; empty if it is one of the oldest epoch kept.

        Args:
            segment: its id, or text such as "2.1".

        Raises:
            NotFound: the stream never had it.
            HistoryCompacted: it was sealed before the oldest epoch kept.
            InvalidArgument: the id is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.predecessors, segment)

    def epoch(self, number: int) -> Epoch:
        """Return one epoch.

        Args:
            number: its number, from 0 on.

        Raises:
            NotFound: the stream has no such epoch yet.
            HistoryCompacted: it is older than the oldest epoch kept.
            InvalidArgument: the number is not an int.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.epoch, number)

    def epochs(self, *, after: int | None = None, limit: int | None = None) -> list[Epoch]:
        """Return the epochs that are kept, the oldest first.

        Args:
            after: number of the last epoch of the previous page. None (default): from the oldest on.
            limit: how many to return at most. None (default): all.

        Raises:
            InvalidArgument: an argument is not an int, or is negative.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(partial(self._twin.epochs, after=after, limit=limit))

    def scales(
        self,
        from_ms: int | None = None,
        to_ms: int | None = None,
        *,
        after: int | None = None,
        limit: int = PAGE_ENTRIES,
    ) -> list[PastScale]:
        """Return the scale history: the epoch that was active at a time, and each one until a later time.

        Args:
            from_ms: wall time, in ms since 1970. None (default): from the oldest epoch kept on.
            to_ms: wall time, in ms since 1970. None (default): until now.
            after: number of the last epoch of the previous page. None (default): the first page.
            limit: how many to return at most. Default: 1000.

        Raises:
            InvalidArgument: an argument is not an int, or the times are in the wrong order.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(partial(self._twin.scales, from_ms, to_ms, after=after, limit=limit))

    def segments_between(
        self,
        from_cut: StreamCut | None = None,
        to_cut: StreamCut | None = None,
        *,
        after: SegmentName | None = None,
        limit: int = PAGE_ENTRIES,
    ) -> list[SegmentDescription]:
        """Return the segments in either of two cuts or between them, by id: the older ones first.

        Args:
            from_cut: the earlier cut. None (default): the beginning of the oldest epoch kept.
            to_cut: the later cut. None (default): the end of the current epoch.
            after: the last segment of the previous page, by id or text. None (default): the first page.
            limit: how many to return at most. Default: 1000.

        Raises:
            InvalidArgument: `to_cut` is not equal to or after `from_cut`, or an argument has the wrong type.
            InvalidCut: a cut is not one of the stream, or its history was dropped.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.

        Cost:
            Reads the epochs in which the segments of the page were created.
        """
        return self._loop.call(
            partial(self._twin.segments_between, from_cut, to_cut, after=after, limit=limit)
        )

    def size_before(self, cut: StreamCut) -> StreamSize:
        """Return what was written before a cut since the stream was created, truncated events included.

        Args:
            cut: a cut of this stream, at or after the head.

        Raises:
            InvalidCut: the cut is not one of the stream.
            InvalidArgument: `cut` is not a cut.
            StreamReplaced: the handle or the cut belongs to a deleted stream of this name.
            Truncated: the cut lies before the head.
        """
        return self._loop.call(self._twin.size_before, cut)

    def size_between(self, from_cut: StreamCut | None = None, to_cut: StreamCut | None = None) -> StreamSize:
        """Return what lies between two cuts, in bytes and in events.

        Args:
            from_cut: the earlier cut, at or after the head. None (default): the head.
            to_cut: the later cut. None (default): the tail.

        Raises:
            InvalidCut: a cut is not one of the stream.
            InvalidArgument: `to_cut` is not equal to or after `from_cut`, or an argument is not a cut.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.
            Truncated: a cut lies before the head.
        """
        return self._loop.call(self._twin.size_between, from_cut, to_cut)

    def measure(self, start: Moment | StreamCut = "head", end: Moment | StreamCut = "tail") -> MeasuredPart:
        """Return two positions, and the sizes before the first one and between them, all of one moment.

        Args:
            start: the earlier position: a cut at or after the head, "head" (default), "tail", or a time in ms, as for
                `cut_at`.
            end: the later position, likewise. Default: "tail".

        Raises:
            InvalidCut: a cut is not one of the stream.
            InvalidArgument: `end` is not equal to or after `start`, or an argument is no position.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.
            Truncated: a cut lies before the head.
        """
        return self._loop.call(self._twin.measure, start, end)

    def compare_cuts(self, one: StreamCut, other: StreamCut) -> CutOrder:
        """Return how one cut relates to another: before it, equal to or after it, or overlapping.

        Args:
            one: a cut of this stream.
            other: a cut of this stream.

        Raises:
            InvalidCut: a cut is not one of the stream, or its history was dropped.
            InvalidArgument: an argument is not a cut.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.compare_cuts, one, other)

    def truncation(self) -> TruncationDescription | None:
        """Return where, when and how far the stream was truncated last; None if it never was.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.truncation)


class TopicCalls:
    """The coroutine methods of `Topic`, without `await`."""

    def __init__(self, loop: Loop, twin: Topic[Any]) -> None:
        self._loop = loop
        self._twin = twin

    def describe(self) -> TopicDescription:
        """Return the topic's state, strategy, partitions and sizes, all of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted topic of this name.
        """
        return self._loop.call(self._twin.describe)

    def partitions(self) -> list[PartitionDescription]:
        """Return the partitions, by number.

        Raises:
            StreamReplaced: the handle belongs to a deleted topic of this name.
        """
        return self._loop.call(self._twin.partitions)

    def segments_of(self, partitions: Iterable[int]) -> tuple[SegmentId, ...]:
        """Return the segments of partitions, for `reader(segments=...)`.

        Args:
            partitions: their numbers.

        Raises:
            InvalidArgument: there is no such partition.
            StreamReplaced: the handle belongs to a deleted topic of this name.
        """
        return self._loop.call(self._twin.segments_of, partitions)

    def add_partitions(
        self,
        count: int,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> tuple[int, ...]:
        """Add partitions, and return their numbers. No other partition is touched or waits.

        Keys move: with the strategy "key", most keys go to another partition from now on, so a key's events are in
        order within the old and within the new partition, and not across them. Groups read new partitions from their
        beginning.

        Args:
            count: how many, at least 1. A topic has at most 1,023.
            if_version: the version that the topic must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            InvalidArgument: the number is not valid, or the topic would have too many.
            ScaleRefused: another call added partitions meanwhile.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StreamSealed: the topic is sealed.
            InProgress: partitions are being added.
            StillPending: the wait ended first; the change goes on.
        """
        return self._loop.call(
            partial(
                self._twin.add_partitions,
                count,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def alter(
        self,
        *,
        partitions: int | None = None,
        partitioning: Strategy | Partitioner[Any] | None = None,
        retention: RetentionPolicy | None = None,
        ttl_ms: int | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> None:
        """Change the number of partitions, the strategy, or how long events are kept and delivered.

        The first two move keys to other partitions: see `add_partitions`. An own strategy is used by producers that are
        made from this handle.

        Args:
            partitions: how many the topic has afterwards, at least as many as now. None (default): as now.
            partitioning: "key", "round_robin", or a Partitioner. None (default): as now.
            retention: how long events are kept; `RetentionPolicy()` keeps everything. None (default): as now.
            ttl_ms: how long groups deliver an event after it was appended, in ms; 0: as long as it is kept. Consumers
                use a new value within a second, except for events that they have read ahead. None (default): as now.
            if_version: the version that the topic must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            InvalidArgument: the number, the strategy or the policy is not valid.
            ScaleRefused: the topic would lose partitions.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StreamSealed: the topic is sealed.
            InProgress: the topic is being altered.
            StillPending: the wait ended first; the change goes on.
        """
        self._loop.call(
            partial(
                self._twin.alter,
                partitions=partitions,
                partitioning=partitioning,
                retention=retention,
                ttl_ms=ttl_ms,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def truncate(
        self,
        cut: StreamCut | None = None,
        *,
        partition: int | None = None,
        before_ms: int | None = None,
        before_number: int | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> None:
        """Remove the oldest events of all partitions, or of one.

        Exactly one of `cut`, `before_ms` and `before_number` says up to where. Events that are gone already stay gone.

        Args:
            cut: a cut of this topic: the events before it are removed, from all partitions.
            partition: its number. None (default): all partitions.
            before_ms: remove the events that were appended before this wall time, in ms since 1970.
            before_number: remove the events of `partition` before this event number, which consumers call its offset.
            if_version: the version that the topic must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one, even if it names another partition, time or number. None (default): a
                new id.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            InvalidArgument: not exactly one limit is given, it lies beyond the end, or there is no such partition.
            InvalidCut: the cut is not one of this topic.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StreamSealed: the topic is sealed.
            InProgress: the topic is being truncated.
            StillPending: the wait ended first; the truncation goes on.
        """
        self._loop.call(
            partial(
                self._twin.truncate,
                cut,
                partition=partition,
                before_ms=before_ms,
                before_number=before_number,
                if_version=if_version,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )

    def delete(
        self, *, if_version: int | None = None, request_id: str | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """Seal and delete the topic, with all its events. Repeat the call if it failed in between.

        Args:
            if_version: the version that the topic must have, as `describe` shows it. None (default): any.
            request_id: a UUID version 7, such as `ep.requests.new_id()` makes. A repeated call with the same id returns
                what became of the first one. None (default): a new id.
            timeout_ms: how long to wait for both outcomes, in ms. Default: 120 s.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StillPending: the wait ended first; the deletion goes on, if the topic is sealed.
        """
        self._loop.call(
            partial(self._twin.delete, if_version=if_version, request_id=request_id, timeout_ms=timeout_ms)
        )


class ReaderGroupCalls:
    """The coroutine methods of `ReaderGroup`, without `await`."""

    def __init__(self, loop: Loop, twin: ReaderGroup) -> None:
        self._loop = loop
        self._twin = twin

    def describe(self) -> GroupDescription:
        """Return the group's readers, its segments with their owners, and how much is not finished.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each segment of its streams.
        """
        return self._loop.call(self._twin.describe)

    def info(self) -> GroupInfo:
        """Return the group's streams, options and generation.

        Raises:
            NotFound: no such group.
        """
        return self._loop.call(self._twin.info)

    def cuts(self) -> dict[str, StreamCut]:
        """Return the durable position of the group in each of its streams.

        The streams may be truncated there: no reader of the group will ever need earlier events.

        Returns:
            {name of the stream: cut}.

        Raises:
            NotFound: no such group.
            StreamReplaced: a stream of the group was deleted.
        """
        return self._loop.call(self._twin.cuts)

    def checkpoint(self, name: str | None = None, *, timeout_ms: int = CHECKPOINT_WAIT_MS) -> GroupCheckpoint:
        """Ask every reader for its position, and return the positions once all readers have answered.

        A reader answers between two events. A reader that leaves, dies, or exceeds the group's lease is not waited for.
        Without readers the checkpoint is complete immediately.

        Args:
            name: of the checkpoint. If one of that name is under way or kept, it is that one. None (default): a new
                name.
            timeout_ms: how long to wait for the readers, in ms. Default: 30 s.

        Returns:
            The checkpoint, with a cut of each stream: to reset to, or to truncate at.

        Raises:
            CheckpointPending: the wait ended first; the checkpoint stays under way.
            TooManyCheckpoints: 3 others are under way.
            NotFound: no such group, or a reset dropped the checkpoint.
            InvalidArgument: the name is not valid.

        Cost:
            One write; a read every 200 ms while waiting.
        """
        return self._loop.call(partial(self._twin.checkpoint, name, timeout_ms=timeout_ms))

    def checkpoints(self) -> list[GroupCheckpoint]:
        """Return the complete checkpoints that are kept, oldest first, automatic ones included.

        The newest 8 named ones are kept, and the newest automatic one.

        Raises:
            NotFound: no such group.
            GroupStreamReplaced: a stream of the group was deleted.
        """
        return self._loop.call(self._twin.checkpoints)

    def reset(
        self,
        start: GroupStart = "head",
        *,
        checkpoint: str | None = None,
        streams: Sequence[str] | None = None,
        until: GroupResetEnd = "same",
    ) -> None:
        """Move the group to another position. Readers that are online continue there.

        Streams are found by name, so a stream that was deleted and created again is read from now on.

        Args:
            start: "head" (default), "tail", a time in wall ms, a cut, or {stream: cut}.
            checkpoint: name of a complete checkpoint to go back to, instead of `start`.
            streams: the streams to read from now on. None (default): the same as before.
            until: where the group ends, as a cut or {stream: cut}. None: it does not end. "same" (default): as before.
                With a different end all checkpoints of the group are dropped.

        Raises:
            NotFound: no such group, stream or checkpoint.
            InvalidArgument: the checkpoint is not complete, or an argument has the wrong form.
            InvalidCut: a cut is not one of its stream, or the end lies before the start.
            Truncated: `start` lies before the head of a stream.
        """
        self._loop.call(partial(self._twin.reset, start, checkpoint=checkpoint, streams=streams, until=until))

    def release(self, cut: StreamCut) -> None:
        """Let a stream with retention by consumption lose the events before `cut`, as far as this group is concerned.

        For a group created with `retains="manual"`: until the first call it keeps the stream from losing anything.

        Args:
            cut: of one of the group's streams, at or after the cut that was released last.

        Raises:
            NotFound: no such group.
            StreamReplaced: the stream of the cut was deleted.
            InvalidArgument: the group does not release by itself, or does not read the stream.
            InvalidCut: the cut is not one of the stream, or is before the last one.
        """
        self._loop.call(self._twin.release, cut)

    def update(
        self,
        *,
        lease_ms: int | Same | None = SAME,
        checkpoint_ms: int | Same | None = SAME,
        rebalance_ms: int | Same | None = SAME,
        on_truncated: TruncatedPolicy | None = None,
        assignor: str | None = None,
        retains: RetainedPart | Same | None = SAME,
    ) -> GroupOptions:
        """Change options of the group, and return all of them. Readers stay online, and follow before their next event.

        A lease that is new or other than before counts from now.

        Args:
            lease_ms: how long a reader may go without asking for an event, in ms; None: as long as its process lives.
                "same" (default): as now.
            checkpoint_ms: pause between automatic checkpoints, in ms; None: there are none. "same" (default): as now.
            rebalance_ms: how long a reader may take to release a segment that another one shall own, in ms; None: as
                long as it needs. "same" (default): as now.
            on_truncated: "earliest", "latest" or "error": what to do when unread events were truncated. None (default):
                as now.
            assignor: "equal", "range", "round_robin", "lag", or the name of an own one. None (default): as now.
            retains: what a stream with retention by consumption keeps for the group: "progress", "manual", or None for
                nothing. "same" (default): as now.

        Raises:
            NotFound: no such group.
            NotAReaderGroup: the group belongs to a processor.
            InvalidArgument: an option is not valid.
        """
        return self._loop.call(
            partial(
                self._twin.update,
                lease_ms=lease_ms,
                checkpoint_ms=checkpoint_ms,
                rebalance_ms=rebalance_ms,
                on_truncated=on_truncated,
                assignor=assignor,
                retains=retains,
            )
        )

    def set_assignor(self, assignor: str) -> None:
        """Let another assignor decide which reader owns which segment, from now on. Readers stay online.

        Args:
            assignor: "equal", "range", "round_robin", "lag", or the name of an own one.

        Raises:
            NotFound: no such group.
            InvalidArgument: it is not a valid name.
        """
        self._loop.call(self._twin.set_assignor, assignor)

    def reader_offline(
        self, reader: str, position: Mapping[str, Mapping[SegmentId, int]] | None = None
    ) -> None:
        """Declare a reader dead. Its segments go to other readers; if it is alive, it is fenced and joins again.

        Does nothing if the reader is not online.

        Args:
            reader: its id.
            position: what it finished, {stream: {segment: offset}}, as `GroupReader.position` returns it. None
                (default), and segments without an offset: its last durable progress.

        Raises:
            NotFound: no such group.
            InvalidArgument: `position` names a stream or a segment that is not the reader's.
            InvalidCut: an offset is not the boundary of an event.
        """
        self._loop.call(self._twin.reader_offline, reader, position)

    def delete(self) -> None:
        """Delete the group and its progress. Its readers are fenced.

        Raises:
            NotFound: no such group.
        """
        self._loop.call(self._twin.delete)


class ConsumerGroupCalls:
    """The coroutine methods of `ConsumerGroup`, without `await`."""

    def __init__(self, loop: Loop, twin: ConsumerGroup) -> None:
        self._loop = loop
        self._twin = twin

    def describe(self) -> ConsumerGroupDescription:
        """Return the group's state, its consumers and what they own, and the offsets and lag of each partition.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each partition.
        """
        return self._loop.call(self._twin.describe)

    def update(
        self,
        *,
        lease_ms: int | Same | None = SAME,
        rebalance_ms: int | Same | None = SAME,
        on_truncated: TruncatedPolicy | None = None,
        assignor: str | None = None,
        retains: RetainedPart | Same | None = SAME,
    ) -> GroupOptions:
        """Change options of the group, and return all of them. Consumers stay online, and follow at their next poll.

        A lease that is new or other than before counts from now.

        Args:
            lease_ms: how long a consumer may go without a poll, in ms; None: as long as its process lives.
                "same" (default): as now.
            rebalance_ms: how long a consumer may take to release a partition that another one shall own, in ms; None:
                until its next poll. "same" (default): as now.
            on_truncated: "earliest", "latest" or "error": what to do when unread events were truncated. None (default):
                as now.
            assignor: "equal", "range", "round_robin", "lag", or the name of an own one. None (default): as now.
            retains: what a stream with retention by consumption keeps for the group: "progress", "manual", or None for
                nothing. "same" (default): as now.

        Raises:
            NotFound: no such group.
            NotAReaderGroup: the group belongs to a processor.
            InvalidArgument: an option is not valid.
        """
        return self._loop.call(
            partial(
                self._twin.update,
                lease_ms=lease_ms,
                rebalance_ms=rebalance_ms,
                on_truncated=on_truncated,
                assignor=assignor,
                retains=retains,
            )
        )

    def offsets(self) -> tuple[PartitionOffsets, ...]:
        """Return the offsets of each partition, sorted.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each partition.
        """
        return self._loop.call(self._twin.offsets)

    def commit(self, offsets: Mapping[PartitionRef, int]) -> None:
        """Set offsets of a group without consumers online.

        Args:
            offsets: {(topic, partition): offset of the next event to read}.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
            InvalidArgument: the group does not read the partition, or the offset lies outside it.
        """
        self._loop.call(self._twin.commit, offsets)

    def reset(
        self,
        to: OffsetTarget | None = None,
        *,
        offset: int | None = None,
        shift: int | None = None,
        time_ms: int | None = None,
        duration_ms: int | None = None,
        partitions: Iterable[PartitionRef] | None = None,
        dry_run: bool = False,
    ) -> tuple[OffsetReset, ...]:
        """Move the offsets of a group without consumers online. Exactly one argument says where to.

        Args:
            to: "earliest" or "latest".
            offset: the event number to go to, in each partition.
            shift: so many events further, or back if negative.
            time_ms: to the first event appended at that wall time or later, in ms since 1970.
            duration_ms: to the first event that is not older than that, in ms.
            partitions: (topic, partition) of those to move. None (default): all.
            dry_run: only return what would change; allowed while consumers are online. Default: False.

        Returns:
            The partitions as before and after. An offset outside a partition is moved to its nearest end.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
            GroupStreamReplaced: a topic of the group was deleted.
            InvalidArgument: not exactly one target, or a partition that the group does not read.
        """
        return self._loop.call(
            partial(
                self._twin.reset,
                to,
                offset=offset,
                shift=shift,
                time_ms=time_ms,
                duration_ms=duration_ms,
                partitions=partitions,
                dry_run=dry_run,
            )
        )

    def delete(self) -> None:
        """Delete the group and its offsets. Its topics stay unchanged.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
        """
        self._loop.call(self._twin.delete)


class ConsumerCalls:
    """The coroutine methods of `Consumer`, without `await`."""

    def __init__(self, loop: Loop, twin: Consumer[Any]) -> None:
        self._loop = loop
        self._twin = twin

    def subscribe(self, topics: Iterable[str]) -> None:
        """Consume other topics from now on. Only partitions of topics that come or go move, at the next poll.

        Args:
            topics: names, or patterns such as "shop/orders-*", which also match topics that are created later.

        Raises:
            NotFound: the group was deleted.
            InvalidArgument: a name or a pattern is not valid.
        """
        self._loop.call(self._twin.subscribe, topics)

    def unsubscribe(self) -> None:
        """Consume every topic of the group again, whatever its topics.

        Raises:
            NotFound: the group was deleted.
        """
        self._loop.call(self._twin.unsubscribe)

    def leave(self) -> None:
        """Close it, and give up its partitions immediately, also those of a static consumer.

        Raises:
            As `close`.
        """
        self._loop.call(self._twin.leave)

    def commit(self, offsets: Mapping[PartitionRef, int] | None = None) -> None:
        """Make positions durable: another consumer would continue there.

        Args:
            offsets: {(topic, partition): offset of the next event to read}. None (default): the positions of all
                assigned partitions, so that every event that was delivered counts as processed.

        Raises:
            SegmentFenced: a partition with delivered events was taken from this consumer. Its offset is unchanged; the
                others are committed. Nothing is committed if `offsets` names one that is not assigned.
            InvalidArgument: `offsets` has the wrong form, or an offset lies beyond the end of its partition.
            NotFound: the group was deleted.
            IllegalTransition: a joint transaction holds the progress, and moves it with its commit.

        Cost:
            One write, if anything moved; with `offsets` also a read.
        """
        self._loop.call(self._twin.commit, offsets)

    def seek(self, partition: PartitionRef, offset: int) -> None:
        """Deliver another event of a partition next. The committed offset changes with the next commit.

        Args:
            partition: (topic, partition), one that is assigned to this consumer.
            offset: number of the event, from the first one that is kept to the end of the partition.

        Raises:
            SegmentFenced: the partition is not assigned to this consumer.
            InvalidArgument: the offset lies outside the partition.

        Cost:
            One read.
        """
        self._loop.call(self._twin.seek, partition, offset)

    def seek_to_beginning(self, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver the first events that are kept next.

        Args:
            partitions: of which partitions. None (default): of all assigned ones.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
        """
        self._loop.call(self._twin.seek_to_beginning, partitions)

    def seek_to_end(self, partitions: Iterable[PartitionRef] | None = None) -> None:
        """Deliver only events that are written from now on.

        Args:
            partitions: of which partitions. None (default): of all assigned ones.

        Raises:
            SegmentFenced: a partition is not assigned to this consumer.
        """
        self._loop.call(self._twin.seek_to_end, partitions)


class ShareGroupCalls:
    """The coroutine methods of `ShareGroup`, without `await`."""

    def __init__(self, loop: Loop, twin: ShareGroup) -> None:
        self._loop = loop
        self._twin = twin

    def describe(self) -> ShareGroupDescription:
        """Return the group's state, what is in flight, how often it was delivered, and how much is not finished.

        Raises:
            NotFound: no such share group.

        Cost:
            A few look-ups for each open segment.
        """
        return self._loop.call(self._twin.describe)

    def info(self) -> ShareGroupInfo:
        """Return the group's streams, options and generation.

        Raises:
            NotFound: no such share group.
        """
        return self._loop.call(self._twin.info)

    def reset(self, start: GroupStart = "head", *, streams: Sequence[str] | None = None) -> None:
        """Move the group to another position, while its consumers stay open.

        Consumers lose what they hold, deliveries are counted from 1 again, and events behind the position are
        delivered again. Dead letters stay.

        Args:
            start: "head" (default), "tail", a time in wall ms, a cut, or {stream: cut}.
            streams: the streams to consume from now on, found by name. None (default): the same as before.

        Raises:
            NotFound: no such share group, or stream.
            InvalidArgument: an argument has the wrong form.
            InvalidCut: a cut is not one of its stream.
            Truncated: `start` lies before the head of a stream.
        """
        self._loop.call(partial(self._twin.reset, start, streams=streams))

    def delete(self) -> None:
        """Delete the group and its progress. Its consumers lose what they hold; its dead letters stay.

        Raises:
            NotFound: no such share group.
        """
        self._loop.call(self._twin.delete)


class ShareConsumerCalls:
    """The coroutine methods of `ShareConsumer`, without `await`."""

    def __init__(self, loop: Loop, twin: ShareConsumer[Any]) -> None:
        self._loop = loop
        self._twin = twin

    def poll(
        self, events_max: int = SHARE_POLL_EVENTS, *, timeout_ms: int | None = None
    ) -> list[SharedEvent[P]]:
        """Acquire events, and return them; wait until there are some.

        Each event is this consumer's until it settles it, or until its lock ends: after the group's `lock_ms`, or when
        this process dies. With `auto_accept`, a poll accepts what the previous one returned and the caller did not
        settle. An event whose payload cannot be decoded becomes a dead letter and is not returned.

        Args:
            events_max: the most events to return. Default: 500. One poll returns about 1 MiB at most.
            timeout_ms: how long to wait, in ms; 0 does not wait. None (default): until there are events.

        Returns:
            The events, in no particular order between segments. Empty after `timeout_ms`, or if all streams of the
            group are sealed and all their events are finished.

        Raises:
            NotFound: the group was deleted.
            ShareStreamsDeleted: all streams of the group were deleted.
            StreamSealed: the dead-letter stream of the group is sealed.
            Closed: the consumer was closed.
            InvalidArgument: an argument is not valid.

        Cost:
            One transaction.
        """
        return self._loop.call(partial(self._twin.poll, events_max, timeout_ms=timeout_ms))

    def accept(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]]) -> None:
        """Accept events: they are finished, and nobody receives them again.

        Args:
            events: one event, or several; all or none are accepted.

        Raises:
            LockLost: the consumer no longer holds some of them; nothing changed.
            NotFound: the group was deleted.
            InvalidArgument: not an event of a share group.

        Cost:
            One transaction, however many events.
        """
        self._loop.call(self._twin.accept, events)

    def release(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]]) -> None:
        """Release events: they are delivered again, immediately, or become dead letters if this was the last time.

        Args:
            events: one event, or several; all or none are released.

        Raises:
            LockLost, NotFound, InvalidArgument: as `accept`.
            StreamSealed: the dead-letter stream of the group is sealed.
        """
        self._loop.call(self._twin.release, events)

    def reject(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]], *, error: str = "") -> None:
        """Reject events: they become dead letters, and nobody receives them again unless they are redriven.

        Args:
            events: one event, or several; all or none are rejected.
            error: why, for the dead letter.

        Raises:
            LockLost, NotFound, InvalidArgument: as `accept`.
            StreamSealed: the dead-letter stream of the group is sealed.
        """
        self._loop.call(partial(self._twin.reject, events, error=error))

    def renew(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]]) -> None:
        """Let the locks of events begin again: the consumer holds them for another `lock_ms`.

        Args:
            events: one event, or several; all or none are renewed.

        Raises:
            LockLost, NotFound, InvalidArgument: as `accept`.
        """
        self._loop.call(self._twin.renew, events)


class SupervisorCalls:
    """The coroutine methods of `Supervisor`, without `await`."""

    def __init__(self, loop: Loop, twin: Supervisor) -> None:
        self._loop = loop
        self._twin = twin

    def spec(self) -> SupervisorSpec:
        """Return the present spec.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        return self._loop.call(self._twin.spec)

    def status(self) -> SupervisorStatus:
        """Return what the supervisor does now: state, partitions with their lag, tasks, errors.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.

        Cost:
            Two look-ups per segment of its streams.
        """
        return self._loop.call(self._twin.status)

    def tasks(self) -> list[IngestTaskInfo]:
        """Return the tasks with their reports, the oldest first; of those that ended, the last 200.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.
        """
        return self._loop.call(self._twin.tasks)

    def history(self, *, after: int | None = None, limit: int | None = None) -> list[SupervisorVersion]:
        """Return the versions of the spec, the newest first.

        Args:
            after: number of the last version of the previous page. None (default): the first page.
            limit: how many to return at most. None (default): all.

        Raises:
            NotFound: no such supervisor.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        return self._loop.call(partial(self._twin.history, after=after, limit=limit))

    def lags(self) -> list[LagSample]:
        """Return the history of the lag, the oldest sample first: events behind, of all partitions.

        It reaches back to the beginning of the supervisor. There are at most 240 samples; they are 30 s apart at first,
        and twice as far whenever there would be more.

        Raises:
            NotFound: no such supervisor, or it was terminated and has ended.
        """
        return self._loop.call(self._twin.lags)

    def plot(self, path: str | Path) -> None:
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
        self._loop.call(self._twin.plot, path)

    def suspend(self) -> None:
        """Let the tasks publish and end, and create no others until `resume`. Does nothing if it is suspended.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        self._loop.call(self._twin.suspend)

    def resume(self) -> None:
        """Undo `suspend`: reading goes on at the published offsets. Does nothing if it is not suspended.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        self._loop.call(self._twin.resume)

    def handoff(self, groups: Sequence[int] | None = None) -> None:
        """Let groups publish what they have read now; others go on behind them.

        Args:
            groups: numbers of groups that read. None (default): all of them.

        Raises:
            NotFound: no such supervisor, or it was terminated; or a group does not read. Then nothing changes.
            InvalidArgument: a number is not valid.
        """
        self._loop.call(self._twin.handoff, groups)

    def reset(self, to: StreamCut | Sequence[StreamCut] | None = None) -> None:
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
        self._loop.call(self._twin.reset, to)

    def preview_backfill(self, id: str | None = None, *, task_count: int | None = None) -> SupervisorSpec:
        """Return the spec of the bounded supervisor that `backfill` would begin now, without beginning it.

        Args:
            id: as for `backfill`.
            task_count: as for `backfill`.

        Raises:
            NotFound: no such supervisor, or it was terminated.
            BackfillRefused: as for `backfill`.
            InvalidSpec: as for `backfill`.
        """
        return self._loop.call(partial(self._twin.preview_backfill, id, task_count=task_count))

    def terminate(self) -> None:
        """Let the tasks publish, and end the supervisor. Its history, offsets and table stay.

        Submitting a spec of the same id begins it again, at its offsets.

        Raises:
            NotFound: no such supervisor, or it was terminated.
        """
        self._loop.call(self._twin.terminate)


class DeadLettersCalls:
    """The coroutine methods of `DeadLetters`, without `await`."""

    def __init__(self, loop: Loop, twin: DeadLetters) -> None:
        self._loop = loop
        self._twin = twin

    def list(self, *, limit: int = LIST_MAX, after: str | None = None) -> list[DeadLetter]:
        """Return a page of pending dead letters; an empty page is the end.

        Args:
            limit: The most dead letters of the page, which also ends at about 4 MiB of payloads. Default: 100.
            after: Return those after this id. None (default): from the first.

        Raises:
            NotFound: The group does not exist.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: `limit` is less than 1, or `after` is not an id.
        """
        return self._loop.call(partial(self._twin.list, limit=limit, after=after))

    def get(self, letter: str) -> DeadLetter:
        """Return a pending dead letter.

        Args:
            letter: Its id, such as "0.0:17".

        Raises:
            NotFound: There is no such dead letter, or it is no longer pending.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: `letter` is not an id.
        """
        return self._loop.call(self._twin.get, letter)

    def count(self, ids: Ids = "all") -> LetterCount:
        """Return how many dead letters are pending, and their size.

        Args:
            ids: Which ones; "all" (default) for all.

        Raises:
            NotFound: The group, or a dead letter, does not exist.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: An id is malformed.
        """
        return self._loop.call(self._twin.count, ids)

    def redrive(self, ids: Ids) -> int:
        """Return the originals to the group, which handles them again; return how many were pending.

        The processor handles them in no particular order relative to its waiting events. Events of one key that are
        redriven keep their order among themselves. If the order of a key must hold otherwise, drop the dead letter and
        correct its effect by hand. An interrupted call may be repeated: each dead letter is redriven once.
        An event that fails again is a new dead letter and not part of this call.

        Args:
            ids: Which ones; "all" for those that are pending now.

        Raises:
            NotFound: The group, or a dead letter, does not exist.
            NotAProcessorGroup: The group belongs to readers.
            GroupStreamReplaced: The redrive stream was deleted and created again.
            StreamSealed: The redrive stream is sealed.
            InvalidArgument: An id is malformed.

        Cost:
            One transaction for each 1000 dead letters, or 4 MiB.
        """
        return self._loop.call(self._twin.redrive, ids)

    def drop(self, ids: Ids) -> int:
        """Delete dead letters permanently; return how many were pending. The call may be repeated.

        Args:
            ids: Which ones; "all" for those that are pending now.

        Raises:
            NotFound: The group, or a dead letter, does not exist.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: An id is malformed.
        """
        return self._loop.call(self._twin.drop, ids)


class RunningCalls:
    """The coroutine methods of `Running`, without `await`."""

    def __init__(self, loop: Loop, twin: Running) -> None:
        self._loop = loop
        self._twin = twin

    def status(self) -> list[ProcessorStatus]:
        """Return the status of each processor, in the order of their declaration.

        Raises:
            NotFound: A processor's group was deleted.
        """
        return self._loop.call(self._twin.status)

    def pause(self, name: str) -> None:
        """Pause a processor in all processes, durably: running calls end and no other begins.

        Args:
            name: The processor's name.

        Raises:
            NotFound: The app has no processor of that name.
        """
        self._loop.call(self._twin.pause, name)

    def resume(self, name: str) -> None:
        """Let a paused processor continue, in all processes.

        Args:
            name: The processor's name.

        Raises:
            NotFound: The app has no processor of that name.
        """
        self._loop.call(self._twin.resume, name)

    def wait(self) -> None:
        """Return when all processors were stopped.

        Raises:
            ProcessorFailed: A processor failed; raised as soon as it does.
        """
        self._loop.call(self._twin.wait)

    def wait_idle(self, *, timeout_ms: int | None = None) -> None:
        """Return when nothing is left to process in the groups of the app: each had lag 0 at one moment, durably.

        Args:
            timeout_ms: How long to wait, in ms. None (default): without limit.

        Raises:
            TimeoutError: The time is over.
            ProcessorFailed: A processor failed, or a stream of it was deleted and created again.
            Closed: The app was closed meanwhile.
            InvalidArgument: `timeout_ms` is no number of ms.

        Cost:
            While waiting, one read when progress was made durable, and one a second. This process commits its progress
            whenever it has handled all events that it read, instead of after a second; other processes do not.
        """
        self._loop.call(partial(self._twin.wait_idle, timeout_ms=timeout_ms))

    def stop(self, *, grace_ms: int = GRACE_MS) -> None:
        """Drain every processor: begin no call, let running calls finish, commit, release the segments.

        Calls that still run after the grace period go on until the end of the block, or `cancel_now`.

        Args:
            grace_ms: How long to wait for running calls, in ms. Default: 30 s.

        Raises:
            InvalidArgument: `grace_ms` is no number of ms.
        """
        self._loop.call(partial(self._twin.stop, grace_ms=grace_ms))
