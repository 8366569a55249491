"""Owners of shared work that are suspended or wedged: they live, and write no heartbeat.

An owner of buckets or of segment containers keeps them until a deadline, SILENT_MS after its last heartbeat, in the
monotonic clock that all instances of a directory share. Then the others take them over, as from a dead owner: each
gets a new owner epoch, which fences the last owner when it wakes up. So does the host. The deadline is only a hint;
the row of `owner` decides.

A heartbeat is a file like the host's. An instance writes it when it begins to own something, and once a second while
another owner is open, who could take over. So an instance that is alone writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from eventproc.store.database import Database, SharedSlot
from eventproc.store.database.instances import PeerHeartbeat, Peers

BEAT_MS: Final = 1_000
"""Pause between two heartbeats of an owner, and between two looks at those of the others. Each costs about 20 us."""

SILENT_MS: Final = 10_000
"""How long an owner that writes no heartbeat keeps what it owns. Higher: the work of a suspended one waits longer.
Lower: one whose machine is busy, or whose event loop its user blocks, loses it, which is safe and costs two moves."""

assert SILENT_MS >= 3 * BEAT_MS, "a live owner may miss two heartbeats"


class SilenceDeadlines:
    """When the time of each owner is over, as one instance sees it. Pure."""

    def __init__(self) -> None:
        self._since_ms: Mapping[str, int] = {}
        self._looked_ms: int | None = None

    def silent(self, beats: Mapping[str, int], now_ms: int) -> frozenset[str]:
        """Return the owners whose time is over.

        The time of an owner begins with its last heartbeat, and not before this instance began to look at it. It begins
        again after a pause of this instance: if a whole machine was stopped, nobody wrote a heartbeat.

        Args:
            beats: the owners, and when each wrote its last heartbeat.
            now_ms: of the same clock. Call this every BEAT_MS.
        """
        has_paused = self._looked_ms is None or now_ms - self._looked_ms > SILENT_MS // 2
        known: Mapping[str, int] = {} if has_paused else self._since_ms
        self._looked_ms = now_ms
        self._since_ms = {each: known.get(each, now_ms) for each in beats}
        return frozenset(
            each for each, at_ms in beats.items() if now_ms - max(at_ms, self._since_ms[each]) > SILENT_MS
        )


class OwnerWatch:
    """The heartbeat of one opening of the directory, and what it knows of those of the others."""

    def __init__(self) -> None:
        self._own: PeerHeartbeat | None = None
        self._deadlines = SilenceDeadlines()
        self._silent: Mapping[str, int] = MappingProxyType({})
        self._next_ms = 0

    def beat(self, db: Database) -> None:
        """Write a heartbeat. Call it before this opening begins to own something."""
        if self._own is None:
            self._own = db.peers.beat_of(db.instance_id)
        self._own.write(0)

    def keep(self, db: Database) -> None:
        """Write a heartbeat, and look at the others, if BEAT_MS have passed. Call it while there are other owners."""
        now_ms = db.clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + BEAT_MS
        self.beat(db)
        beats: dict[str, int] = {}
        for each in db.peers.live():
            # Without a heartbeat of this boot only the lock of the instance decides: its file cannot be written.
            found = None if each == db.instance_id else db.peers.beat_of(each).read()
            if found is not None and found.boot_id == db.clock.boot_id:
                beats[each] = found.at_ms
        silent = self._deadlines.silent(beats, now_ms)
        self._silent = MappingProxyType({each: beats[each] for each in silent})

    def is_working(self, peers: Peers, instance: str) -> bool:
        """Return whether an instance lives, and did not exceed its deadline. Callable from any thread."""
        return peers.is_alive(instance) and not self.is_silent(peers, instance)

    def is_silent(self, peers: Peers, instance: str) -> bool:
        """Return whether an instance exceeded its deadline. Callable from any thread."""
        if (last_ms := self._silent.get(instance)) is None:
            return False
        found = peers.beat_of(instance).read()  # it may have continued since the last look
        return found is None or found.at_ms == last_ms


OWNER_WATCH: Final = SharedSlot(OwnerWatch)


def working(db: Database) -> Callable[[str], bool]:
    """Return the function that says whether an instance may keep what it owns: it lives and is not silent."""
    return partial(db.shared[OWNER_WATCH].is_working, db.peers)
