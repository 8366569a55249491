"""The groups of an open directory, by name: the part of `Eventproc` that makes and finds them.

What serves them is imported by the first call, because a program without groups must not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import Unpack

from eventproc.groups import (
    EQUAL,
    READERS,
    GroupEnd,
    GroupOptions,
    GroupStart,
    GroupUpdate,
    RetainedPart,
    TruncatedPolicy,
    ensure_group,
    get_group,
    group_name,
)
from eventproc.store.catalog import get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import (
    DELIVERIES_MAX,
    LOCK_MS,
    DeletedPolicy,
    ShareOptions,
)
from eventproc.store.model.argument_checks import check_iterable, invalid_argument
from eventproc.streams.codec import Codec, PayloadCodec, codec_for
from eventproc.streams.stream import Stream

if TYPE_CHECKING:
    from eventproc.shares import ShareGroup
    from eventproc.topics import Group

P = TypeVar("P")


class GroupSystem:
    """The part of `Eventproc` that makes and finds groups."""

    _db: Database

    @overload
    async def create_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        until: GroupEnd = None,
        on_deleted: DeletedPolicy = "error",
        **options: Unpack[GroupUpdate],
    ) -> Group: ...
    @overload
    async def create_group(
        self,
        name: str,
        streams: Sequence[str] | Sequence[Stream[P]],
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        start: GroupStart = "head",
        until: GroupEnd = None,
        on_deleted: DeletedPolicy = "error",
        **options: Unpack[GroupUpdate],
    ) -> Group[P]: ...
    async def create_group(
        self,
        name: str,
        streams: Sequence[str] | Sequence[Stream[Any]],
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        start: GroupStart = "head",
        until: GroupEnd = None,
        patience_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
        on_deleted: DeletedPolicy = "error",
        assignor: str = EQUAL,
        retains: RetainedPart | None = "progress",
    ) -> Group[Any]:
        """Create a group of readers or consumers that share `streams`, and return its handle.

        Returns the existing group if it is equal.

        Args:
            name: "scope/group", or "group" in the scope of the first stream.
            streams: names of the streams and topics, "scope/stream", or their handles. Consumers read streams, too:
                their segments are the partitions.
            payload: type of the payloads of its readers and consumers. None (default): that of the handles; bytes, if
                they are named.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            start: where a new group begins: "head" (default), "tail", cuts, or a time in ms. Partitions that are added
                later are read from their beginning, and so are streams that a consumer's names or patterns bring
                later. An existing group keeps its position.
            until: where a new group ends: cuts. None (default): it does not end.
            patience_ms: how long a reader may be silent or slow, in ms: between two events that it asks for or two
                polls, to release a segment that another one shall own, and in a callback of a consumer. A reader that
                exceeds it is expired. None (default): only dead readers are.
            checkpoint_ms: interval of automatic checkpoints, in ms. None (default): no automatic checkpoints.
            on_truncated: where to continue when unread events were truncated. Default: the earliest readable event.
            on_deleted: what happens when a stream is deleted: "error" (default): readers get GroupStreamReplaced until
                the group is reset; "drop": it leaves the group, and the others go on.
            assignor: who decides which reader owns which segment: "equal" (default; as few moves as possible),
                "range", "round_robin", "lag" (spreads the unread events), or the name of an own `Assignor`, whose code
                its consumers bring.
            retains: what a stream with retention by consumption keeps for the group: what it has not finished
                ("progress", default), what it has not allowed to be truncated ("manual"), or nothing (None).

        Raises:
            NotFound: no such stream.
            AlreadyExists: the group exists with other streams, or with options that are neither its present ones nor
                those that it was created with.
            GroupStreamReplaced: the group reads a deleted stream of one of these names, and does not drop it.
            InvalidArgument: a name or an option is not valid, or no codec serves the type.
            InvalidCut: a cut is not one of the stream.
            Truncated: a cut lies before the head of the stream.
            StreamReplaced: a handle belongs to a deleted stream of this name.
        """
        from eventproc.topics import Group

        options = GroupOptions(
            patience_ms=patience_ms,
            checkpoint_ms=checkpoint_ms,
            on_truncated=on_truncated,
            on_deleted=on_deleted,
            assignor=assignor,
            retains=retains,
        )
        names, handles, chosen = _named(streams, payload, codec)
        full = group_name(name, names)

        def make(tx: Tx) -> None:
            for each in handles:
                get_stream(tx, each.name, stream_id=each.stream_id)
            ensure_group(tx, full, names, start, until=until, kind=READERS, options=options)

        await self._db.write(make, step=Step.GROUP_CREATE)
        return Group(self._db, full, chosen)

    @overload
    async def group(self, name: str) -> Group: ...
    @overload
    async def group(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> Group[P]: ...
    async def group(
        self, name: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> Group[Any]:
        """Return the handle of a group.

        Args:
            name: "scope/group".
            payload: type of the payloads of its readers and consumers. None (default): bytes.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            NotFound: no such group.
            InvalidArgument: the name is not valid, or no codec serves the type.
        """
        from eventproc.topics import Group

        full, chosen = group_name(name), codec_for(payload, codec)
        await self._db.read(partial(get_group, name=full))
        return Group(self._db, full, chosen)

    @overload
    async def create_share_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        lock_ms: int = LOCK_MS,
        deliveries_max: int = DELIVERIES_MAX,
    ) -> ShareGroup: ...
    @overload
    async def create_share_group(
        self,
        name: str,
        streams: Sequence[str] | Sequence[Stream[P]],
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        start: GroupStart = "head",
        lock_ms: int = LOCK_MS,
        deliveries_max: int = DELIVERIES_MAX,
    ) -> ShareGroup[P]: ...
    async def create_share_group(
        self,
        name: str,
        streams: Sequence[str] | Sequence[Stream[Any]],
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        start: GroupStart = "head",
        lock_ms: int = LOCK_MS,
        deliveries_max: int = DELIVERIES_MAX,
    ) -> ShareGroup[Any]:
        """Create a share group, and return its handle; returns the existing one if equal.

        Its consumers share the events of `streams` one by one, and accept each of them: a queue. It promises no order.

        Args:
            name: "scope/group", or "group" in the scope of the first stream.
            streams: names of the streams or topics, "scope/stream", or their handles.
            payload: type of the payloads of its consumers. None (default): that of the handles; bytes, if they are
                named.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            start: where a new group begins: "head" (default), "tail", cuts, or a time in ms. An existing group keeps
                its position.
            lock_ms: how long a consumer holds an event unless it renews the lock, in ms. Default: 30 s.
            deliveries_max: after so many deliveries an event that nobody accepted becomes a dead letter. Default: 5.

        Raises:
            NotFound: no such stream.
            AlreadyExists: the group exists with other streams or options, or a reader group has that name.
            InvalidArgument: a name or an option is not valid, or no codec serves the type.
            InvalidCut: a cut is not one of the stream.
            Truncated: a cut lies before the head of the stream.
            StreamReplaced: a handle belongs to a deleted stream of this name.
        """
        from eventproc.shares import ShareGroup, ensure_share_group

        options = ShareOptions(lock_ms=lock_ms, deliveries_max=deliveries_max)
        names, handles, chosen = _named(streams, payload, codec)
        full = group_name(name, names)

        def make(tx: Tx) -> None:
            for each in handles:
                get_stream(tx, each.name, stream_id=each.stream_id)
            ensure_share_group(tx, full, names, start, options)

        await self._db.write(make, step=Step.SHARE_CREATE)
        return ShareGroup(self._db, full, chosen)

    @overload
    async def share_group(self, name: str) -> ShareGroup: ...
    @overload
    async def share_group(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> ShareGroup[P]: ...
    async def share_group(
        self, name: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> ShareGroup[Any]:
        """Return the handle of a share group.

        Args:
            name: "scope/group".
            payload: type of the payloads of its consumers. None (default): bytes.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            NotFound: no such share group.
            InvalidArgument: the name is not valid, or no codec serves the type.
        """
        from eventproc.shares import ShareGroup

        full, chosen = group_name(name), codec_for(payload, codec)
        await self._db.read(partial(get_group, name=full, share=True))
        return ShareGroup(self._db, full, chosen)


def _named(
    streams: Iterable[str | Stream[Any]], payload: type[Any] | None, codec: Codec[Any] | None
) -> tuple[list[str], list[Stream[Any]], PayloadCodec[Any]]:
    """Return the names of streams that are named or given by their handles, these handles, and the group's codec."""
    every = list(check_iterable("streams", streams, "a sequence of names or handles is needed"))
    names = [each.name if isinstance(each, Stream) else each for each in every]
    handles = [each for each in every if isinstance(each, Stream)]
    if payload is not None or codec is not None or not handles:
        return names, handles, codec_for(payload, codec)
    chosen: PayloadCodec[Any] = handles[0].codec
    if any((each.codec if isinstance(each, Stream) else codec_for()) != chosen for each in every):
        reason = "their payloads have several types: pass payload= or codec= for the group"
        raise invalid_argument("streams", names, reason)
    return names, handles, chosen
