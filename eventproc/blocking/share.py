"""Share groups and their consumers, without `await`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from eventproc.blocking._generated import ShareConsumerCalls, ShareGroupCalls
from eventproc.blocking.loop import Loop, Opened
from eventproc.shares import ShareConsumer, SharedEvent, ShareGroup
from eventproc.streams import Codec

P = TypeVar("P", default=bytes)
Q = TypeVar("Q")


class BlockingShareConsumer(ShareConsumerCalls, Opened, Generic[P]):
    """Consumes events of a share group; made open by `BlockingShareGroup.consumer`. See `ShareConsumer`.

    Several threads may settle events of one consumer; one thread polls or iterates.
    """

    def __init__(self, loop: Loop, consumer: ShareConsumer[P]) -> None:
        super().__init__(loop, consumer)
        self.consumer = consumer.consumer

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @property
    def held_events(self) -> int:
        """How many events this consumer received and has not settled."""
        return self._twin.held_events

    def __iter__(self) -> Iterator[SharedEvent[P]]:
        """Yield events one by one; asking for the next accepts the previous one. See `ShareConsumer`.

        Each event costs one call of the loop, 0.4 ms; `poll` returns many.
        """

        async def advance() -> SharedEvent[P] | None:
            return await anext(self._twin, None)

        while (event := self._loop.call(advance)) is not None:
            yield event


class BlockingShareGroup(ShareGroupCalls):
    """The handle of a share group; made by `create_share_group` and `share_group`. See `ShareGroup`."""

    def __init__(self, loop: Loop, group: ShareGroup) -> None:
        super().__init__(loop, group)
        self.name = group.name

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @overload
    def consumer(
        self, consumer: str | None = None, *, auto_accept: bool = False
    ) -> BlockingShareConsumer[bytes]: ...
    @overload
    def consumer(
        self,
        consumer: str | None = None,
        *,
        payload: type[Q] | None = None,
        codec: Codec[Q] | None = None,
        auto_accept: bool = False,
    ) -> BlockingShareConsumer[Q]: ...
    def consumer(
        self,
        consumer: str | None = None,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        auto_accept: bool = False,
    ) -> BlockingShareConsumer[Any]:
        """Return an open consumer, to be closed or used in `with`. See `ShareGroup.consumer`."""
        found = self._twin.consumer(consumer, payload=payload, codec=codec, auto_accept=auto_accept)
        return BlockingShareConsumer(self._loop, found)._opened()
