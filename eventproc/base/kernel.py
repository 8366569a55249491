"""What Linux and macOS do differently. Each difference is one function or one value here, with a form for both.

No other module asks on which system it runs. The library runs on Linux, and on macOS for development: nothing of it has
run on a Mac yet, see docs/design/lifecycle.md. The system is chosen when this module is imported, so that
tests/without_linux can import it as on macOS.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

if sys.platform not in ("linux", "darwin"):
    raise ImportError(
        f"eventproc runs on Linux, and on macOS for development, but not on {sys.platform!r}."
        " Use a container or a virtual machine with Linux; on Windows, WSL 2"
    )

import fcntl  # other systems have neither
import resource

LINUX: Final = sys.platform == "linux"

FOLDS_CASE: Final = not LINUX
"""Whether a disk takes names that differ by upper and lower case only for the same one, as those of Macs do."""

Mounts: TypeAlias = Iterable[tuple[Path, str]]
"""Mount points, each with the type of its file system. A later one hides an earlier one at the same place."""

# struct flock with 64-bit offsets, in the machine's own alignment: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("@hhqqi4x")

if sys.platform == "linux":
    HAS_DESCRIPTION_LOCKS: Final = hasattr(fcntl, "F_OFD_SETLK")
    """Whether `lock_bytes` works. The requests of macOS have another layout, and nobody has tried them beside SQLite: a
    lock that does not do what we believe would be worse than none."""

    KEEPALIVE_IDLE: Final = socket.TCP_KEEPIDLE
    """Option of a socket: for how many seconds it is silent before the kernel asks whether the peer is alive."""

    STUCK_TIMEOUT: Final[int | None] = socket.TCP_USER_TIMEOUT
    """Option of a socket: for how many ms its peer may take nothing. None: the kernel has no such limit."""

    _RUSAGE_THREAD: Final = resource.RUSAGE_THREAD
    _PEAK_UNIT_BYTES: Final = 1024

    def sync(descriptor: int) -> None:
        """Return when a file, or the entries of a folder, are on the disk. Raises OSError."""
        os.fsync(descriptor)

    def sync_data(descriptor: int) -> None:
        """Do the same for what reading a file needs, without its times. Raises OSError."""
        os.fdatasync(descriptor)

    @cache
    def boot_id() -> str:
        """Return an identifier of this boot of the machine, the same one in all processes."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            # Where the kernel gives none, the moment of the boot, to the second, takes its place: leases only need it
            # to differ between boots.
            return f"{os.uname().nodename}-{round(time.time() - time.monotonic())}"

    def mounts() -> Mounts:
        """Return what is mounted; nothing if the kernel does not say. Raises OSError."""
        table = Path("/proc/self/mountinfo")
        return parse_mountinfo(table.read_text(errors="surrogateescape")) if table.exists() else ()

else:
    HAS_DESCRIPTION_LOCKS: Final = False
    KEEPALIVE_IDLE: Final = socket.TCP_KEEPALIVE
    STUCK_TIMEOUT: Final[int | None] = None
    _RUSAGE_THREAD: Final = resource.RUSAGE_SELF
    _PEAK_UNIT_BYTES: Final = 1
    _FULL_SYNC: Final = fcntl.F_FULLFSYNC

    def sync(descriptor: int) -> None:
        """Return when a file is on the disk: after fsync alone it may be in the disk's own cache. Raises OSError."""
        with suppress(OSError):  # some file systems do not implement it; SQLite does the same then
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
        os.fsync(descriptor)

    sync_data = sync

    @cache
    def boot_id() -> str:
        """Return an identifier of this boot of the machine. Raises OSError, subprocess.CalledProcessError."""
        return _output("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid").strip()

    def mounts() -> Mounts:
        """Return what is mounted. Raises OSError, subprocess.CalledProcessError. A few ms, for a process."""
        return parse_mount(_output("/sbin/mount"))

    def _output(*command: str) -> str:
        import subprocess  # Linux needs none

        done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
        return os.fsdecode(done.stdout)


def parse_mountinfo(text: str) -> Mounts:
    r"""Yield the mounts of /proc/self/mountinfo.

    Source: proc(5), "36 35 98:0 /root /mount\040point options optional... - type source options".
    """
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) >= 6:
            point = re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), fields[4])
            yield Path(point), after.split()[0]


def parse_mount(text: str) -> Mounts:
    """Yield the mounts that the `mount` of macOS prints: "//guest@nas/share on /Volumes/share (smbfs, nodev)"."""
    for line in text.splitlines():
        if found := re.fullmatch(r".*? on (/.*) \((\w+)[,)].*", line):
            yield Path(found[1]), found[2]


def file_system_of(path: Path, mounted: Mounts) -> str:
    """Return the type of the file system that holds an absolute, resolved path, "" if `mounted` does not list it."""
    holding = [
        (len(point.parts), at, kind) for at, (point, kind) in enumerate(mounted) if path.is_relative_to(point)
    ]
    return max(holding, default=(0, 0, ""))[2]


def lock_bytes(descriptor: int, kind: int, start: int, length: int) -> None:
    """Request a lock that belongs to the open file, not to the process. Needs HAS_DESCRIPTION_LOCKS. Raises OSError.

    kind: `fcntl.F_RDLCK` or `fcntl.F_UNLCK`.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))


def byte_holder(descriptor: int, start: int) -> int | None:
    """Return the pid of another process with a lock on a byte; None without one. Needs HAS_DESCRIPTION_LOCKS."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)
    kind, _whence, _start, _length, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(pid)


def lock_holders(path: Path) -> tuple[int, ...]:
    """Return the pids that hold an flock on `path`, ascending; empty where the kernel does not list them, as on macOS.

    Raises OSError if the list cannot be read now.
    Source: /proc/locks, "1: FLOCK  ADVISORY  READ 4711 08:01:131 0 EOF"; waiting requests have an arrow. Compared by
    inode only, because on btrfs the device there is not the one that stat reports.
    """
    inode = str(os.stat(path).st_ino)
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, PermissionError):
        return ()
    locks = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
    return tuple(sorted({int(words[4]) for words in locks if words[5].rsplit(":", 1)[1] == inode}))


def open_files() -> list[tuple[int, int]]:
    """Return (device, inode) of every descriptor of this process. Needs HAS_DESCRIPTION_LOCKS. About 2 us each."""
    found: list[tuple[int, int]] = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own descriptor, and descriptors that other threads close
            status = os.fstat(int(name))
            found.append((status.st_dev, status.st_ino))
    return found


def thread_waits() -> int:
    """Return how often this thread gave up its core to wait; on macOS, any thread of the process. 1 us."""
    return resource.getrusage(_RUSAGE_THREAD).ru_nvcsw


def peak_memory_bytes() -> int:
    """Return the peak memory of this process.

    It comes from /proc if possible, because getrusage's peak includes that of the parent process before exec.
    """
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT_BYTES
