"""The sign of life of a host that holds its lock: a small file, written in place, never synced.

Death needs no beat: the kernel releases the lock. The beat is for a host that is stopped with the lock in
its hand. It lies beside the database and not in it, because an idle directory must not write a
transaction a second; nothing depends on its surviving anything.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import attrs

from eventproc.store.clock import Clock

LOG = logging.getLogger("eventproc.host")


@attrs.frozen
class Beat:
    """The last sign of life: by which owner epoch, when (monotonic ms of which boot)."""

    owner_epoch: int
    at_ms: int
    boot_id: str


class BeatFile:
    """The file `controller.beat` of a directory."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._failed = False

    def write(self, owner_epoch: int) -> None:
        """Leave a sign of life; one small write to the page cache.

        When it cannot be written, that is logged once: a host without a beat serves on, until requests are
        pending while another looks, who then takes over.
        """
        text = f"{owner_epoch} {self._clock.monotonic_ms()} {self._clock.boot_id}\n"
        try:
            self._write(text)
        except OSError as error:
            if not self._failed:
                LOG.warning("no sign of life can be left at %s: %s", self._path, error)
            self._failed = True
        else:
            self._failed = False

    def _write(self, text: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text.encode().ljust(96), 0)
        finally:
            os.close(descriptor)

    def read(self) -> Beat | None:
        """Return the last sign of life, None when there never was one or it cannot be read."""
        try:
            epoch, at_ms, boot_id = self._path.read_text().split()
            return Beat(int(epoch), int(at_ms), boot_id)
        except (OSError, ValueError):
            return None

    def age_ms(self) -> int | None:
        """Return how old the last sign of life is, None when there is none of this boot."""
        beat = self.read()
        if beat is None or beat.boot_id != self._clock.boot_id:
            return None
        return self._clock.monotonic_ms() - beat.at_ms
