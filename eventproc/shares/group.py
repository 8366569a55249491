"""The handle of a share group: everything that can be done with one, by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

from typing_extensions import TypeVar, Unpack

from eventproc.groups import GroupStart, ShareGroupDescription, ShareUpdate, describe_share_group
from eventproc.groups.named_group import NamedGroup
from eventproc.processors.dead_letters.operations import DeadLetters
from eventproc.shares.changes import (
    ShareResetPreview,
    consumer_offline,
    reset_share_group,
    update_share_group,
)
from eventproc.shares.consumer import ShareConsumer
from eventproc.store.database import Tx
from eventproc.store.faults import Step
from eventproc.store.groups import ShareOptions, delete_group, get_group
from eventproc.store.model.argument_checks import check_str
from eventproc.streams.codec import Codec, chosen_codec, decode_of

P = TypeVar("P")
T = TypeVar("T", default=bytes)


class ShareGroup(NamedGroup[T]):
    """A group of consumers that share events one by one; made by `create_share_group` and `share_group`.

    T is the type of its payloads, bytes by default: its consumers take it from here.
    """

    _is_share = True

    @property
    def dead_letters(self) -> DeadLetters[T]:
        """The dead letters of the group, whose values have its type."""
        return DeadLetters(self._db, self.name, self._codec)

    @overload
    def consumer(self, consumer: str | None = None, *, auto_accept: bool = False) -> ShareConsumer[T]: ...
    @overload
    def consumer(
        self,
        consumer: str | None = None,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        auto_accept: bool = False,
    ) -> ShareConsumer[P]: ...
    def consumer(
        self,
        consumer: str | None = None,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        auto_accept: bool = False,
    ) -> ShareConsumer[Any]:
        """Return a consumer of the group, for `async with`, or for `await` and `close`.

        Args:
            consumer: its id, for descriptions and errors. None (default): a new one.
            payload: type of the payloads, as for `Stream.reader`. None (default): that of this handle.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            auto_accept: whether a poll accepts what the previous poll returned and the caller did not settle.
                Default: False. Iterating always does.

        Raises:
            InvalidArgument: no codec serves the type.
            NotFound: entering; no such share group.
        """
        decode = decode_of(chosen_codec(self._codec, payload, codec))
        return ShareConsumer[Any](self._db, self.name, consumer, decode=decode, auto_accept=auto_accept)

    async def describe(self) -> ShareGroupDescription:
        """Return the group's state, what is in flight, how often it was delivered, and how much is not finished.

        Raises:
            NotFound: no such share group.

        Cost:
            A few look-ups for each open segment.
        """
        return await self._db.read(partial(describe_share_group, name=self.name, peers=self._db.peers))

    async def reset(
        self, start: GroupStart = "head", *, streams: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[ShareResetPreview]:
        """Move the group to another position, while its consumers stay open.

        Consumers lose what they hold, deliveries are counted from 1 again, and events behind the position are
        delivered again. Dead letters stay.

        Args:
            start: "head" (default), "tail", a time in wall ms, a cut, or {stream: cut}.
            streams: the streams to consume from now on, found by name. None (default): the same as before.
            dry_run: only return what would change. Default: False.

        Returns:
            Each stream that the group consumes afterwards, before and after the reset.

        Raises:
            NotFound: no such share group, or stream.
            InvalidArgument: an argument has the wrong form.
            InvalidCut: a cut is not one of its stream.
            Truncated: `start` lies before the head of a stream.
        """

        act = partial(reset_share_group, name=self.name, start=start, streams=streams, dry_run=dry_run)
        return await (self._db.read(act) if dry_run else self._db.write(act, step=Step.SHARE_CHANGE))

    async def update(self, **options: Unpack[ShareUpdate]) -> ShareOptions:
        """Change options of the group, or its streams, and return all options. Consumers stay open.

        They follow in all processes: a poll that waits looks again, and each lock that begins or is renewed from now
        on has the new length. Locks of before keep their end. An event that was delivered `deliveries_max` times or
        more becomes a dead letter when its next or present delivery ends.

        A stream that is added is consumed from its head. Of a stream that is left out, the group forgets everything:
        consumers lose what they hold of it, and its dead letters stay.

        Args:
            options: see `ShareUpdate`.

        Raises:
            NotFound: no such share group, or stream.
            InvalidArgument: an option is not valid.
        """
        step = partial(update_share_group, name=self.name, changes=options)
        return await self._db.write(step, step=Step.SHARE_CHANGE)

    async def consumer_offline(self, consumer: str) -> int:
        """Declare a consumer dead: what it holds is available immediately, and this delivery counts.

        If it is alive, settling these events raises `LockLost`, and it may poll again. An event whose last delivery
        this was becomes a dead letter.

        Args:
            consumer: its id.

        Returns:
            How many events it held: 0 for a consumer that is not known.

        Raises:
            NotFound: no such share group.
            InvalidArgument: the id is not a text.
            StreamSealed: the dead-letter stream of the group is sealed.

        Cost:
            One transaction, and a further one for each 4 MiB of events that become dead letters.
        """
        check_str("consumer", consumer)
        act = partial(consumer_offline, db=self._db, name=self.name, consumer=consumer)
        events, is_left = 0, True
        while is_left:
            released, is_left = await self._db.write(act, step=Step.SHARE_CHANGE)
            events += released
        return events

    async def delete(self) -> None:
        """Delete the group and its progress. Its consumers lose what they hold; its dead letters stay.

        Raises:
            NotFound: no such share group.
        """

        def act(tx: Tx) -> None:
            get_group(tx, self.name, share=True)  # another kind of group may have the name since
            delete_group(tx, self.name)

        await self._db.write(act, step=Step.SHARE_DELETE)
