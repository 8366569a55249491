"""Methods of the blocking twin that only hand a call to the loop. Written by `python -m tools.blocking`."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

from eventproc.blocking.loop import Loop
from eventproc.groups import GroupInfo
from eventproc.groups.describe import GroupDescription
from eventproc.groups.group import CHECKPOINT_WAIT_MS, ReaderGroup
from eventproc.groups.operations import GroupCheckpoint
from eventproc.groups.start_positions import GroupResetEnd, GroupStart
from eventproc.processors import ProcessorDescription
from eventproc.processors.dead_letters.dead_letter import DeadLetter
from eventproc.processors.dead_letters.operations import LIST_MAX, DeadLetters, Ids, LetterCount
from eventproc.processors.observe.status import ProcessorStatus
from eventproc.processors.run import GRACE_MS, Running
from eventproc.runtime.requests import Requests
from eventproc.runtime.system import Eventproc
from eventproc.store.backup.results import BackupResult
from eventproc.store.database import SqlParameters, SqlValue
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.requests import Request
from eventproc.streams import ScopeInfo, StreamInfo
from eventproc.streams.description import SegmentDescription, StreamDescription, TransactionDescription
from eventproc.streams.offload import OffloadResult
from eventproc.streams.request_calls import WAIT_MS
from eventproc.streams.stream import RangeName, SegmentName, Stream
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

    def delete_scope(self, name: str, *, recursive: bool = False, timeout_ms: int = WAIT_MS) -> None:
        """Delete a scope.

        Args:
            name: the scope's name.
            recursive: delete its reader groups, synchronizers and streams first. Default: an empty scope only.
            timeout_ms: how long to wait for the outcome of a recursive delete, in ms. Default: 120 s.

        Raises:
            NotFound: no such scope.
            ScopeNotEmpty: the scope has streams, reader groups or synchronizers, and `recursive` is False.
            IllegalTransition: the scope is being deleted.
            StillPending: the wait ended first; the deletion goes on.
        """
        self._loop.call(partial(self._twin.delete_scope, name, recursive=recursive, timeout_ms=timeout_ms))

    def scopes(self) -> list[ScopeInfo]:
        """Return the scopes, by name."""
        return self._loop.call(self._twin.scopes)

    def streams(self, scope: str | None = None) -> list[StreamInfo]:
        """Return the streams, by name.

        Args:
            scope: only those of this scope. None (default): of all scopes.

        Raises:
            NotFound: no such scope.
        """
        return self._loop.call(self._twin.streams, scope)

    def reader_groups(self, scope: str | None = None) -> list[GroupInfo]:
        """Return the groups by name, those of processors included.

        Args:
            scope: only those of this scope. None (default): of all scopes.

        Raises:
            NotFound: no such scope.
        """
        return self._loop.call(self._twin.reader_groups, scope)

    def synchronizers(self, scope: str | None = None) -> list[str]:
        """Return the names of the shared objects of a scope, sorted.

        Args:
            scope: its name. None (default): all scopes.

        Raises:
            NotFound: the scope does not exist.
        """
        return self._loop.call(self._twin.synchronizers, scope)

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

    def processors(self) -> list[ProcessorDescription]:
        """Return the processors that ever ran here, by name of their groups, with processes, lag and members."""
        return self._loop.call(self._twin.processors)

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
            request_id: a UUID version 7. Repeating a call with the same id returns what became of the first call.
                None (default): a new id.
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

    def list(self, *, limit: int = 100) -> builtins.list[Request]:
        """Return the newest requests, newest first.

        Args:
            limit: how many at most. Default: 100.

        Raises:
            InvalidArgument: `limit` is less than 1.
        """
        return self._loop.call(partial(self._twin.list, limit=limit))

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


class StreamCalls:
    """The coroutine methods of `Stream`, without `await`."""

    def __init__(self, loop: Loop, twin: Stream[Any]) -> None:
        self._loop = loop
        self._twin = twin

    def transactions(self, *, finished: bool = False) -> list[TransactionDescription]:
        """Return the transactions under way: open, committing and aborting; the oldest first, at most 500.

        Args:
            finished: return those that ended instead, the newest first. They are kept for a day, and at most the last
                100,000 commits and 10,000 aborts of a stream.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(partial(self._twin.transactions, finished=finished))

    def describe(self) -> StreamDescription:
        """Return the stream's state, segments, ends and sizes, all of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.describe)

    def epochs(self) -> list[Epoch]:
        """Return the epochs that are kept, the oldest first.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.epochs)

    def segments(self) -> list[SegmentDescription]:
        """Return the active segments, in the order of their key ranges.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.segments)

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
        """Return the cut before the events that were appended at or after a time; the head if that is later.

        Args:
            time_ms: wall time, in ms since 1970.

        Raises:
            InvalidArgument: the time is not an int.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return self._loop.call(self._twin.cut_at, time_ms)

    def update(self, *, scaling: ScalingPolicy, timeout_ms: int = WAIT_MS) -> None:
        """Replace the stream's configuration, and scale to the number of segments that it asks for.

        Args:
            scaling: the new scaling policy.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another update is running.
            StillPending: the wait ended first; the update goes on.
        """
        self._loop.call(partial(self._twin.update, scaling=scaling, timeout_ms=timeout_ms))

    def scale(
        self, *, seal: Sequence[SegmentName], ranges: Sequence[RangeName], timeout_ms: int = WAIT_MS
    ) -> tuple[SegmentId, ...]:
        """Seal active segments and open new ones over exactly their key space; return the new ids.

        Args:
            seal: the segments to seal, by id or text such as "2.1".
            ranges: key ranges of the new segments, as pairs or text such as "0.25-0.5".
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            ScaleRefused: a segment is not active, or too few or too many would remain.
            InvalidArgument: the ranges do not cover the sealed segments' key space exactly.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            StillPending: the wait ended first; the scale goes on.
        """
        return self._loop.call(partial(self._twin.scale, seal=seal, ranges=ranges, timeout_ms=timeout_ms))

    def split(
        self, segment: SegmentName, into: int = 2, *, timeout_ms: int = WAIT_MS
    ) -> tuple[SegmentId, ...]:
        """Split an active segment into equal parts; return their ids.

        Args:
            segment: its id, or text such as "2.1".
            into: number of parts. Default: 2.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            NotFound: the segment is not active.
            InvalidArgument: the number of parts is not valid.
            ScaleRefused: another scale sealed the segment meanwhile, or too many segments would result.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            StillPending: the wait ended first; the split goes on.
        """
        return self._loop.call(partial(self._twin.split, segment, into, timeout_ms=timeout_ms))

    def merge(self, *segments: SegmentName, timeout_ms: int = WAIT_MS) -> SegmentId:
        """Merge neighbouring active segments; return the new id.

        Args:
            segments: two or more, by id or text such as "2.1".
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            NotFound: a segment is not active.
            InvalidArgument: the segments are fewer than two, or not neighbours.
            ScaleRefused: another scale sealed a segment meanwhile, or too few segments would remain.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            StillPending: the wait ended first; the merge goes on.
        """
        return self._loop.call(partial(self._twin.merge, *segments, timeout_ms=timeout_ms))

    def truncate(self, cut: StreamCut, *, timeout_ms: int = WAIT_MS) -> None:
        """Move the head to `cut`: the events before it are gone.

        Args:
            cut: a cut of this stream, at or after the head.
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            InvalidCut: the cut is one of another stream, before the head, beyond the tail, or inside an event.
            StreamReplaced: the stream of the cut, usually that of this handle, was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another truncation is running.
            StillPending: the wait ended first; the truncation goes on.
        """
        self._loop.call(partial(self._twin.truncate, cut, timeout_ms=timeout_ms))

    def seal(self, *, timeout_ms: int = WAIT_MS) -> None:
        """End the stream permanently: no more appends; reading goes on. Does nothing if the stream is sealed.

        Args:
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StillPending: the wait ended first; the seal goes on.
        """
        self._loop.call(partial(self._twin.seal, timeout_ms=timeout_ms))

    def delete(self, *, timeout_ms: int = WAIT_MS) -> None:
        """Delete the sealed stream.

        Args:
            timeout_ms: how long to wait for the outcome, in ms. Default: 120 s.

        Raises:
            StreamNotSealed: seal it first.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StillPending: the wait ended first; the deletion goes on.
        """
        self._loop.call(partial(self._twin.delete, timeout_ms=timeout_ms))

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
