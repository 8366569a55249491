"""The host's part in the groups of the internal streams: all of their segments, for as long as it is the host.

There is nothing to share: one instance serves them, and which one is decided by the row that `Owner` compares. So
what a segment's owner epoch is to a group of users, the host's is here, in the same places: it is compared in every
transaction that moves progress.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import anyio

from eventproc.groups import Membership, SegmentKey, SegmentOwnership
from eventproc.store.catalog import SYSTEM_EPOCH, SystemStream
from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_events, get_progress


class HostedMember(Membership):
    """See `Membership`; the group is named as its stream."""

    def __init__(self, db: Database, stream: SystemStream, owner: Owner) -> None:
        self.group = stream.name
        self.reader = owner.instance
        self._db = db
        self._stream = stream
        self._owner = owner
        self._owned: Mapping[SegmentKey, SegmentOwnership] = MappingProxyType({})

    @property
    def owned(self) -> Mapping[SegmentKey, SegmentOwnership]:
        """Every segment of the stream, from the first refresh on."""
        return self._owned

    @property
    def surplus(self) -> frozenset[SegmentKey]:
        """None: there is nobody to give them to."""
        return frozenset()

    @property
    def paused(self) -> bool:
        """Never: commands would wait for ever."""
        return False

    async def refresh(self) -> None:
        """Acquire the segments, unless that was done. Raises OwnerFenced."""
        if not self._owned:
            self._owned = MappingProxyType(await self._db.read(self._acquire))

    def _acquire(self, tx: Tx) -> dict[SegmentKey, SegmentOwnership]:
        self._owner.check(tx)
        return {
            (self._stream.stream_id, segment): self._assigned(tx, segment) for segment in SYSTEM_EPOCH.ids
        }

    def _assigned(self, tx: Tx, segment: SegmentId) -> SegmentOwnership:
        progress = get_progress(tx, self.group, self._stream.stream_id, segment)
        return SegmentOwnership(
            self._stream.name, self._stream.stream_id, segment, self._owner.owner_epoch, progress
        )

    async def wait_change(self, timeout_ms: int | None = None) -> None:
        """Wait until `timeout_ms`, or for ever: a host that was replaced is told by its next transaction."""
        if timeout_ms is None:
            await anyio.sleep_forever()
        else:
            await anyio.sleep(timeout_ms / 1000)

    async def release(self, keys: Collection[SegmentKey]) -> None:
        """Drop them; whoever is the host next takes all."""
        self._owned = MappingProxyType({key: each for key, each in self._owned.items() if key not in keys})

    def move(self, tx: Tx, moved: Mapping[SegmentKey, Progress]) -> None:
        """Make progress durable with the rest of `tx`. Raises OwnerFenced."""
        self._owner.check(tx)
        for (stream_id, segment), progress in moved.items():
            prefix = (0, progress.number, progress.offset)
            for low, high, end in (prefix, *progress.finished):
                finish_events(tx, EventRef(self.group, stream_id, segment, low, end), high - low)

    def complete(self, tx: Tx, key: SegmentKey) -> None:
        """Never called: internal streams are not sealed."""
        raise AssertionError(f"segment {key} of {self.group} has no end")

    def publish(self, tx: Tx, status: str) -> None:
        """Keep nothing: people look at requests, not at who serves them."""
