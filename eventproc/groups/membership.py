"""A reader's part in a group, as those see it who process its events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Protocol

from eventproc.groups.keys import SegmentKey, SegmentOwnership
from eventproc.store.database import Tx
from eventproc.store.model.progress import Progress


class Membership(Protocol):
    """A reader's part in a group, as those see it who process its events. Used by one task at a time."""

    group: str
    reader: str

    @property
    @abstractmethod
    def owned(self) -> Mapping[SegmentKey, SegmentOwnership]:
        """The segments that are this reader's, as of the last refresh; progress as it was when acquired."""

    @property
    @abstractmethod
    def surplus(self) -> frozenset[SegmentKey]:
        """Those of `owned` that shall go to others: to be drained, made durable and released."""

    @property
    @abstractmethod
    def paused(self) -> bool:
        """Whether somebody paused the group."""

    @abstractmethod
    async def refresh(self) -> None:
        """Acquire what is due to this reader, drop what it lost. One read when there is nothing to do.

        A reader that was expired finds `owned` empty, and has joined again. Raises ReaderFenced when another process
        reads under its id, NotFound when the group was deleted.
        """

    @abstractmethod
    async def wait_change(self, timeout_ms: int | None = None) -> None:
        """Return when a refresh may give something else: the group changed, or a member died."""

    @abstractmethod
    async def release(self, keys: Collection[SegmentKey]) -> None:
        """Give back segments that were drained and made durable; those that were lost are dropped."""

    @abstractmethod
    def move(self, tx: Tx, moved: Mapping[SegmentKey, Progress]) -> None:
        """Make progress durable with the rest of `tx`, an UPDATE a segment. Raises SegmentFenced."""

    @abstractmethod
    def complete(self, tx: Tx, key: SegmentKey) -> None:
        """Say that a sealed segment was processed to its end, to which `move` has moved it. Raises SegmentFenced.

        Those of its successors open that waited for nothing else. NotFound when nobody knows them any more: the
        stream was truncated beyond them.
        """

    @abstractmethod
    def publish(self, tx: Tx, status: str) -> None:
        """Write what people may want to know of this reader: JSON."""
