"""The handle of a reader group: everything that can be done with one, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload

import anyio

from eventproc.groups.cuts import group_cuts
from eventproc.groups.describe import GroupDescription, GroupInfo, describe_group, group_info
from eventproc.groups.liveness import POLL_MS, expire_silent, has_silent
from eventproc.groups.operations import (
    GroupCheckpoint,
    find_checkpoint,
    list_checkpoints,
    pending_readers,
    reader_offline,
    reset_group,
    start_checkpoint,
)
from eventproc.groups.reader import GroupReader
from eventproc.groups.start_positions import GroupResetEnd, GroupStart
from eventproc.store.clock import new_id
from eventproc.store.database import Database, Tx
from eventproc.store.groups import delete_group, watch_group
from eventproc.store.model.argument_checks import check_int, check_str
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.group_errors import CheckpointPending
from eventproc.store.model.ids import SegmentId
from eventproc.streams.codec import Codec, codec_for, decode_of

P = TypeVar("P")

CHECKPOINT_WAIT_MS = 30_000
"""How long `checkpoint` waits unless told otherwise: a reader says where it stands when it asks for its next event."""


class ReaderGroup:
    """A group of readers that share streams. Made by `create_reader_group` and `reader_group`."""

    def __init__(self, db: Database, name: str) -> None:
        self._db = db
        self.name = name

    def __repr__(self) -> str:
        return f"<ReaderGroup {self.name}>"

    @overload
    def reader(self, reader: str) -> GroupReader[bytes]: ...
    @overload
    def reader(
        self, reader: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> GroupReader[P]: ...
    def reader(
        self, reader: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> GroupReader[Any]:
        """Return a reader of the group, to be used in `async with`.

        Args:
            reader: its id, unique among the readers that are online. The id of a dead reader may be used again.
            payload: type of the payloads, as for `Stream.reader`. None (default): bytes.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            InvalidArgument: no codec serves the type.
            ReaderOnline: entering; a live process reads under that id.
            NotFound: entering; no such group.
            NotAReaderGroup: entering; the group belongs to a processor.
            GroupStreamReplaced: entering; a stream of the group was deleted.
        """
        return GroupReader[Any](self._db, self.name, reader, decode=decode_of(codec_for(payload, codec)))

    async def describe(self) -> GroupDescription:
        """Return who reads what, how far, and what is left, in events and bytes. Raises NotFound."""
        return await self._db.read(partial(describe_group, name=self.name))

    async def info(self) -> GroupInfo:
        """Return the group's streams, options and generation. Raises NotFound."""
        return await self._db.read(partial(group_info, name=self.name))

    async def cuts(self) -> dict[str, StreamCut]:
        """Return where the group stands durably in each stream: it may be truncated there, whoever dies.

        Raises NotFound, StreamReplaced.
        """
        return await self._db.read(partial(group_cuts, name=self.name))

    async def checkpoint(
        self, name: str | None = None, *, timeout_ms: int = CHECKPOINT_WAIT_MS
    ) -> GroupCheckpoint:
        """Let every reader say where it stands, and return that once all have. Without readers: at once.

        A reader says it between two events. One that leaves, dies, or hangs for longer than the group's lease is not
        waited for. name: a new one unless given; one by that name, under way or kept, is that one. timeout_ms: how long
        to wait. Raises TooManyCheckpoints, NotFound (also when a reset dropped it), CheckpointPending (it goes on),
        InvalidArgument. Cost while waiting: a read each 200 ms, as of every reader.
        """
        timeout_ms = check_int("timeout", timeout_ms, least=0, unit="ms")
        chosen = f"checkpoint-{new_id(self._db.clock)}" if name is None else check_str("checkpoint", name)

        def look(tx: Tx) -> tuple[GroupCheckpoint | None, tuple[str, ...], bool]:
            found = find_checkpoint(tx, self.name, chosen)
            return found, pending_readers(tx, self.name, chosen), has_silent(tx, self._db, self.name)

        def start(tx: Tx) -> tuple[GroupCheckpoint | None, tuple[str, ...], bool]:
            expire_silent(tx, self._db, self.name)
            start_checkpoint(tx, self.name, chosen)
            return look(tx)

        with self._db.subscribe([watch_group(self.name)]) as changes:
            found, pending, is_silent = await self._db.write(start)
            with anyio.move_on_after(timeout_ms / 1000):
                while found is None:
                    if is_silent:
                        await self._db.write(partial(expire_silent, db=self._db, group=self.name))
                    else:
                        await changes.wait(POLL_MS)
                    found, pending, is_silent = await self._db.read(look)
        if found is not None:
            return found
        raise CheckpointPending(group=self.name, checkpoint=chosen, waited_ms=timeout_ms, readers=pending)

    async def checkpoints(self) -> list[GroupCheckpoint]:
        """Return the complete checkpoints that are kept, oldest first, automatic ones included."""
        return await self._db.read(partial(list_checkpoints, group=self.name))

    async def reset(
        self,
        start: GroupStart = "head",
        *,
        checkpoint: str | None = None,
        streams: Sequence[str] | None = None,
        until: GroupResetEnd = "same",
    ) -> None:
        """Begin anew at `start`, or at a checkpoint by its name; readers that are online go on there.

        Streams are found by name, also when they were deleted and made again; streams: others from now on. until:
        where the group ends, None: nowhere; with other ends than before its checkpoints are forgotten. Raises
        NotFound, InvalidArgument, InvalidCut (also when it would end before it begins), Truncated.
        """
        step = partial(
            reset_group,
            group=self.name,
            start=start,
            checkpoint=checkpoint,
            streams=streams,
            until=until,
        )
        await self._db.write(step)

    async def reader_offline(
        self, reader: str, position: Mapping[str, Mapping[SegmentId, int]] | None = None
    ) -> None:
        """Declare a reader dead; what it owned goes to others at `position`, or at its last durable progress.

        position: as `GroupReader.position` gives it. A reader that is not online is fine: nothing changes. Raises
        NotFound (the group), InvalidArgument, InvalidCut.
        """
        step = partial(reader_offline, group=self.name, reader=reader, position=position)
        await self._db.write(step)

    async def delete(self) -> None:
        """Remove the group and its progress; its readers are fenced. Raises NotFound."""
        await self._db.write(partial(delete_group, name=self.name))
