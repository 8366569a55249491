"""Heartbeats: small files that owners rewrite in place and never sync.

The kernel releases the locks of a process when it dies, so a death needs no heartbeat. A heartbeat detects an owner
that is suspended or wedged while it holds its lock: the host, and the instances that share buckets and containers. It
is a file beside the database because a row would cost an idle directory one synced transaction a second. Losing the
file does no harm.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import attrs

from eventproc.store.clock import Clock

LOG = logging.getLogger("eventproc.host")


@attrs.frozen
class Heartbeat:
    """The last heartbeat, and when it was written (monotonic ms of boot `boot_id`).

    owner_epoch: of the host that wrote it; 0 for other owners.
    """

    owner_epoch: int
    at_ms: int
    boot_id: str


class HeartbeatFile:
    """The file `controller.beat` of a directory, or `instances/<id>.beat` of one of its instances."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._failed = False

    def write(self, owner_epoch: int) -> None:
        """Write a heartbeat: one small write to the page cache.

        A failure is logged once. A host without a heartbeat continues to serve until another instance finds pending
        work and takes over; another owner without one keeps what it owns until it dies.
        """
        text = f"{owner_epoch} {self._clock.monotonic_ms()} {self._clock.boot_id}\n"
        try:
            self._write(text)
        except OSError as error:
            if not self._failed:
                LOG.warning("cannot write the heartbeat to %s: %s", self._path, error)
            self._failed = True
        else:
            self._failed = False

    def _write(self, text: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text.encode().ljust(96), 0)
        finally:
            os.close(descriptor)

    def read(self) -> Heartbeat | None:
        """Return the last heartbeat, or None if there is none or it cannot be read."""
        try:
            epoch, at_ms, boot_id = self._path.read_text().split()
            return Heartbeat(int(epoch), int(at_ms), boot_id)
        except (OSError, ValueError):
            return None

    def age_ms(self) -> int | None:
        """Return the age of the last heartbeat, or None if there is none of this boot."""
        return age_of(self.read(), self._clock)


def age_of(heartbeat: Heartbeat | None, clock: Clock) -> int | None:
    """Return the age of a heartbeat, or None if there is none of this boot."""
    if heartbeat is None or heartbeat.boot_id != clock.boot_id:
        return None
    return clock.monotonic_ms() - heartbeat.at_ms
