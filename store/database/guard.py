"""Recognises what other programs do to the files of a database: its log is removed, replaced, cut off or left behind.

The danger while it is open: POSIX locks belong to the process, and closing *any* descriptor of a file drops all of
them. A second SQLite library in this process, or a plain open() and close() of the database, removes the locks of our
connections. Then the next connection that closes the database, in any process, believes that it is the last one. It
unlinks the WAL or truncates `-shm` while we use them: commits are acknowledged and lost (reference pitfalls.md S1.3).

The guard: `FileGuard` takes shared open-file-description locks, which no close of another descriptor drops, on the
bytes that a last closer must lock exclusively: SQLite's SHARED range of the database, and the "dead man switch" of
`-shm`. SQLite itself takes shared locks there all the time, so they do not disturb other connections. The detector:
`ReplacedFileDetector` compares the inodes of the files. Without such locks it is the only protection.

Invariants:
- The guard's own descriptors obey the same rule: they are closed only if no other descriptor of this process has the
  database open. Until then they stay open, unlocked.
- The process has one pair of descriptors per database file, regardless of the number of handles.

While it is closed, the log (WAL) may be lost, cut off or damaged, or the database copied without it. Two records say
what the log holds:
- The *mark*, a row of `meta`. It says `used` before the first commit of a session is acknowledged, and `empty` once the
  last process has copied the log into the file. While the file says `empty`, the file alone is complete.
- `log.record`, a file beside the database. It holds the id of the mark, and where the log ended after the last commit.
  It is written inside write.lock. Only a new id is synced. After a power loss the rest may be that of any earlier
  time, so where the log ended is not compared after the next boot.

The first process that opens a directory compares both with the files. Reasons: docs/design/the-guard.md.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Final, Self

import attrs

from eventproc.base import kernel
from eventproc.base.clock import Clock, new_id
from eventproc.store.database.files import DATABASE, RECORD_FILE, DirectoryWatch, primary_code
from eventproc.store.database.locks import ProcessBound, close_private, mutex, open_private, when_forked
from eventproc.store.faults import LAST_CLOSE_COPIED, LAST_CLOSE_MARKED, Faults
from eventproc.store.model.errors import DatabaseStopped, StoreUnusable

SHARED_FIRST: Final = 0x40000002
SHARED_SIZE: Final = 510
"""The bytes of the database file that every connection locks shared: os_unix.c, SHARED_FIRST and SHARED_SIZE."""

DEAD_MAN_SWITCH: Final = 128
"""The byte of -shm that every connection locks shared: os_unix.c, UNIX_SHM_DMS = (22 + SQLITE_SHM_NLOCK) * 4 + 8."""

FILES: Final = ("", "-wal", "-shm")
"""Suffixes of the files of an open database in WAL mode."""


@attrs.define
class _GuardDescriptors:
    """The two descriptors of one database, and the number of handles of this process that use them."""

    database_fd: int
    shm_fd: int | None = None
    handles: int = 0


_registry: Final[dict[tuple[int, int], _GuardDescriptors]] = {}

_unsupported: Final[set[tuple[int, int]]] = set()
"""Databases for which the kernel does not support such locks."""


class FileGuard(ProcessBound):
    """The guard of a database file, as held by one handle."""

    def __init__(self, key: tuple[int, int] | None) -> None:
        super().__init__()
        self._key = key

    @classmethod
    def hold(cls, db_path: Path) -> Self:
        """Guard the database from now on. Call it after a connection has read in WAL mode, so that `-shm` exists.

        That first connection was not protected and may use another WAL or `-shm` than the guard finds. So write only
        through a connection that is opened afterwards. A second handle of the process shares the descriptors of the
        first. Raises FileNotFoundError if another program closed the database as its last user meanwhile, and
        BlockingIOError while another program holds it exclusively, perhaps to do so. 20 us.
        """
        if not kernel.HAS_DESCRIPTION_LOCKS:
            return cls(None)
        with mutex:
            status = os.stat(db_path)
            key = (status.st_dev, status.st_ino)
            if key in _unsupported:
                return cls(None)
            held = _registry.get(key) or _GuardDescriptors(_open(db_path))
            _registry[key] = held
            if held.handles == 0:
                try:
                    supported = _lock(held, Path(f"{db_path}-shm"))
                except OSError:
                    _unlock(held)
                    raise
                if not supported:
                    # Closing drops the locks of this process, so do it only once per file: now the only connection is
                    # that of the caller, which is not used any more.
                    _unsupported.add(key)
                    _drop(key)
                    return cls(None)
            held.handles += 1
            return cls(key)

    @property
    def active(self) -> bool:
        """Whether the kernel guards the file; False if it has no open-file-description locks."""
        return self._key is not None

    @property
    def shm_fd(self) -> int | None:
        """A descriptor of `-shm`, for reading only (closing it drops locks), or None if the guard is not active."""
        return None if self._key is None or self.forked else _registry[self._key].shm_fd

    def release(self) -> None:
        """Release this handle's guard. Call it after its last connection was closed.

        A second call, or a call in a forked child, does nothing.
        """
        if self._key is None or self.forked:
            return
        with mutex:
            key, self._key = self._key, None
            held = _registry[key]
            held.handles -= 1
            if held.handles == 0:
                _unlock(held)
                _drop_unused()


class ReplacedFileDetector:
    """Detects that another program removed or replaced a file of an open database, so that later commits are lost.

    They are lost if the WAL is gone, if the next opener uses another WAL or `-shm`, or if a checkpoint copies the WAL
    into a deleted file.

    The detector checks the directory, and the files only after entries changed. Kernels from 6.13 on record the next
    change of a file exactly once a program has asked for its times, and write its inode with the next sync. On ext4
    without a journal that was a third wait for the disk in each commit.
    """

    def __init__(self, db_path: Path, clock: Clock) -> None:
        """Remember the present files. Raises DatabaseStopped if one is missing, because WAL mode needs all of them."""
        self._path = db_path
        self._directory_watch = DirectoryWatch(db_path.parent, clock)
        self._expected: dict[str, tuple[int, int]] = {}
        for suffix in FILES:
            if (found := self._find(suffix)) is None:
                reason = f"{db_path.name}{suffix} is missing although the database is open"
                raise DatabaseStopped(path=str(db_path), reason=reason)
            self._expected[suffix] = found

    def check(self) -> None:
        """Raise DatabaseStopped if a file was removed or replaced. Called before every acknowledgement. 2 us."""
        if not self._directory_watch.may_have_changed():
            return
        for suffix, expected in self._expected.items():
            if (found := self._find(suffix)) != expected:
                how = "removed" if found is None else "replaced"
                reason = (
                    f"{self._path.name}{suffix} was {how} by another program while the database was open, so its last "
                    f"commits may be lost; do not open, copy or delete these files while a process has them open"
                )
                raise DatabaseStopped(path=str(self._path), reason=reason)
        self._directory_watch.mark_seen()

    def _find(self, suffix: str) -> tuple[int, int] | None:
        try:
            status = os.stat(f"{self._path}{suffix}")
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def _open(path: Path) -> int:
    return open_private(path, os.O_RDONLY)


def _follow_shm(held: _GuardDescriptors, path: Path) -> None:
    """Open the present `-shm`. It may be a new one if no handle of this process guarded the database meanwhile."""
    if held.shm_fd is not None:
        kept, present = os.fstat(held.shm_fd), os.stat(path)
        if (kept.st_dev, kept.st_ino) == (present.st_dev, present.st_ino):
            return
        close_private(held.shm_fd)
        held.shm_fd = None
    held.shm_fd = _open(path)


def _lock(held: _GuardDescriptors, shm: Path) -> bool:
    """Take both locks; return False if the kernel does not implement them (as in some sandboxes)."""
    try:
        # In this order: while the first lock is held no process removes -shm, so the opened one is the present one.
        kernel.lock_bytes(held.database_fd, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)
    except OSError as why:
        if why.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise
    _follow_shm(held, shm)
    assert held.shm_fd is not None, "no -shm to lock"
    kernel.lock_bytes(held.shm_fd, fcntl.F_RDLCK, DEAD_MAN_SWITCH, 1)
    return True


def _unlock(held: _GuardDescriptors) -> None:
    kernel.lock_bytes(held.database_fd, fcntl.F_UNLCK, SHARED_FIRST, SHARED_SIZE)
    if held.shm_fd is not None:
        kernel.lock_bytes(held.shm_fd, fcntl.F_UNLCK, DEAD_MAN_SWITCH, 1)


def _drop_unused() -> None:
    """Close the pairs without a handle, if this process has no other descriptor of the database open."""
    unused = [key for key, held in _registry.items() if held.handles == 0]
    if unused:
        opened = kernel.open_files()
        for key in unused:
            if opened.count(key) <= 1:
                _drop(key)


def _drop(key: tuple[int, int]) -> None:
    held = _registry.pop(key)
    if held.shm_fd is not None:
        close_private(held.shm_fd)
    close_private(held.database_fd)


def _forget_registry() -> None:
    _registry.clear()


when_forked(_forget_registry)


LOG = logging.getLogger(__name__)

_RECORD_BYTES: Final = 256
"""Length of the file: six words, padded, so that one write replaces all of them."""

MARK_ATTEMPTS_MAX: Final = 16
"""Batches that try to copy the mark into the file. A read of this library lasts for milliseconds; behind one that lasts
for longer, the next regular checkpoint copies it. Until then a copy without the log is not recognised."""

RESTARTS_MAX: Final = 2**16
"""How many times the log may have begun again since the record. Each time adds one to its first salt, which is random
at first. A higher value takes an unrelated log for a later one more often."""

_NO_ID: Final = "-"

# The wal-index header in -shm: iVersion, unused, iChange, isInit, bigEndCksum, szPage, mxFrame, nPage, aFrameCksum.
_WAL_INDEX: Final = struct.Struct("=IIIBBHIIII")
# aSalt follows, as the bytes of the log's own header.
_SALTS: Final = struct.Struct(">II")
_HEADER_BYTES: Final = 48
# After two copies of the header: nBackfill, the frames that a checkpoint copied.
_COPIED: Final = struct.Struct("=I")
_COPIED_AT: Final = 2 * _HEADER_BYTES

_REMEDY: Final = "or restore a backup with `eventproc restore`"


@attrs.frozen
class LogMark:
    """The row of `meta` that says whether commits lie in the log. id: a new one for each change to `used`."""

    id: str
    used: bool


@attrs.frozen
class LogEnd:
    """The valid frames of the log, and its salts, of which the first grows by one when the log begins again."""

    frames: int
    salts: tuple[int, int]

    def covers(self, needed: LogEnd) -> bool:
        """Return whether a log that ends here has the frames that it had at `needed`."""
        if self.salts == needed.salts:
            return self.frames >= needed.frames
        # A log begins again only after all its frames were copied into the file. That may follow the record: in a
        # process that was killed before it committed or recorded, or by another program, several times.
        return self != _NOTHING and 0 < (self.salts[0] - needed.salts[0]) % 2**32 <= RESTARTS_MAX


_NOTHING: Final = LogEnd(0, (0, 0))


@attrs.frozen
class LogRecord:
    """The content of `log.record`.

    id: of the mark. before: id of the mark before it, which the file has until the new one is copied into it.
    end: where the log ended; no frames if everything lies in the file. boot: boot of the machine.
    file_ns: when the database file had last changed, by its own time.
    """

    id: str
    before: str
    boot: str
    end: LogEnd = _NOTHING
    file_ns: int = 0


class LogRecordFile:
    """The open file `log.record`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / RECORD_FILE
        self._descriptor = open_private(self.path, os.O_RDWR | os.O_CREAT)

    def read(self) -> LogRecord | None:
        """Return the record; None if nothing was recorded yet, or it cannot be read."""
        return _parse(os.pread(self._descriptor, _RECORD_BYTES, 0))

    def write(self, record: LogRecord, *, sync: bool = False) -> None:
        """Replace the record; with `sync`, until it is on the disk. Raises OSError."""
        end = record.end
        self.write_end(record, end.frames, *end.salts, record.file_ns)
        if sync:
            kernel.sync(self._descriptor)

    def write_end(self, record: LogRecord, frames: int, first: int, second: int, file_ns: int) -> None:
        """Replace the record by one with another end. 2 us. Raises OSError."""
        text = f"{record.id} {record.before} {record.boot} {frames} {first} {second} {file_ns}"
        os.pwrite(self._descriptor, text.ljust(_RECORD_BYTES - 1).encode() + b"\n", 0)

    def close(self) -> None:
        """Close the file."""
        close_private(self._descriptor)


def _parse(text: bytes) -> LogRecord | None:
    words = text.decode("ascii", "replace").split()
    try:
        mark, before, boot, frames, first, second, file_ns = words
        return LogRecord(mark, before, boot, LogEnd(int(frames), (int(first), int(second))), int(file_ns))
    except ValueError:  # empty, or damaged
        return None


def read_record(directory: Path) -> LogRecord | None:
    """Return the record of a directory without keeping its file open."""
    try:
        return _parse((directory / RECORD_FILE).read_bytes())
    except OSError:
        return None


def read_mark(connection: sqlite3.Connection) -> LogMark | None:
    """Return the mark as the connection sees it, log included; None in a database without one."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'log'").fetchone()
    if row is None:
        return None
    state, _, mark = str(row[0]).partition(" ")
    return LogMark(mark, used=state != "empty")


def store_mark(connection: sqlite3.Connection, mark: LogMark) -> None:
    """Store the mark; part of the caller's transaction."""
    value = f"{'used' if mark.used else 'empty'} {mark.id}"
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('log', ?)", (value,))


def mark_of_file(db_path: Path) -> LogMark | None:
    """Return the mark that the file alone has, without its log. Call it only while no process has the database open."""
    try:
        with closing(sqlite3.connect(f"{db_path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
            return read_mark(connection)
    except sqlite3.Error:  # damaged, or of another program: opening it reports that
        return None


def find_log_end(shm_fd: int | None) -> LogEnd | None:
    """Return where the log ends now, as `-shm` says; None if that cannot be read. 1 us."""
    if shm_fd is None:
        return None
    header = os.pread(shm_fd, _WAL_INDEX.size + _SALTS.size, 0)
    if len(header) < _WAL_INDEX.size + _SALTS.size:
        return None
    frames = _WAL_INDEX.unpack_from(header)[6]
    first, second = _SALTS.unpack_from(header, _WAL_INDEX.size)
    return LogEnd(frames, (first, second))


def check_files(db_path: Path, clock: Clock) -> bool:
    """Refuse a database that lost its log, or was replaced. Called before the first connection, which changes files.

    Returns whether the log must have what the record says, see `check_log`. The caller knows that no other process has
    the database open. Raises StoreUnusable. About 200 us.
    """
    if os.path.exists(f"{db_path}-journal"):  # a first opening died: nothing was ever committed
        return False
    name, path = db_path.name, str(db_path.parent)
    record, mark = read_record(db_path.parent), mark_of_file(db_path)
    log_bytes = _size(Path(f"{db_path}-wal"))
    if record is None:
        if mark is not None and mark.used and not log_bytes:
            reason = (
                f"{name} in it is a copy without its log ({name}-wal), made while a process used the original or after"
                f" it was killed: its last commits are missing. Make a copy with `eventproc backup`, {_REMEDY}"
            )
            raise StoreUnusable(path=path, reason=reason)
        return False
    if mark is not None and mark.id not in (record.id, record.before):
        reason = (
            f"{name} in it is not the file that was used here last, so its log does not belong to it. Put that file"
            f" back, {_REMEDY}. To use this file without its log, remove {RECORD_FILE}, {name}-wal and {name}-shm"
        )
        raise StoreUnusable(path=path, reason=reason)
    if mark is not None and not mark.used and mark.id == record.id:
        return False  # the last close completed the file, and was interrupted before the record of it
    same_boot = record.boot == clock.boot_id
    may_be_needed = same_boot or mark is None or mark.used
    if record.end.frames and may_be_needed and not log_bytes and not _was_emptied(db_path, record):
        how = "missing" if log_bytes is None else "empty"
        raise StoreUnusable(
            path=path,
            reason=f"{name}-wal in it, the log with the last commits, is {how}; put it back, {_REMEDY}",
        )
    return same_boot and record.end.frames > 0


def check_log(db_path: Path, file: LogRecordFile, shm_fd: int | None) -> None:
    """Refuse a log that SQLite could read only in part. Called after recovery, while the database is guarded.

    Not after another boot: a power loss may leave an older record, and with the durability `os` a shorter log.
    Raises StoreUnusable.
    """
    record = file.read()
    if record is None or not record.end.frames:
        return
    found = find_log_end(shm_fd)
    if found is None or found.covers(record.end) or (not found.frames and _was_emptied(db_path, record)):
        return
    name, readable = db_path.name, found.frames if found.salts == record.end.salts else 0
    raise StoreUnusable(
        path=str(db_path.parent),
        reason=f"{name}-wal in it, the log with the last commits, is damaged or was cut off: {readable} of its"
        f" {record.end.frames} pages can be read. Put it back, {_REMEDY}",
    )


def _was_emptied(db_path: Path, record: LogRecord) -> bool:
    """Return whether another program copied the log into the file after the last commit.

    That program changes the file after the record, and as the last user it removes `-shm` with the log. File times
    advance in steps, so a change in the same step counts if the file has another time than at the record.
    """
    if not os.path.exists(f"{db_path}-wal") and os.path.exists(f"{db_path}-shm"):
        return False
    changed_ns = os.stat(db_path).st_mtime_ns
    return changed_ns >= os.stat(db_path.parent / RECORD_FILE).st_mtime_ns and changed_ns != record.file_ns


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


@attrs.define
class LogRecorder:
    """Keeps mark and record of one opening. Used by one thread at a time, inside write.lock.

    is_marked: whether the file is marked as incomplete without its log.
    frames, pages: of the log, and of the database, when this opening last committed; None if that is not known.
    appends: whether the log had frames, when this opening last committed, that no checkpoint had copied. Otherwise the
    next commit may begin the log again, and then syncs its header.
    """

    connection: sqlite3.Connection
    file: LogRecordFile
    shm_fd: int | None
    clock: Clock
    _record: LogRecord | None = None
    is_marked: bool = attrs.field(default=False, init=False)
    _attempts_left: int = 0
    _database: str = attrs.field(init=False)
    _header: bytes | None = attrs.field(default=None, init=False)
    _copied: tuple[int, int] | None = attrs.field(default=None, init=False)
    _file_ns: int = attrs.field(default=0, init=False)
    _end: tuple[int, int, int, int] | None = attrs.field(default=None, init=False)
    frames: int | None = attrs.field(default=None, init=False)
    pages: int | None = attrs.field(default=None, init=False)
    appends: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._database = str(
            self.file.path.with_name(DATABASE)
        )  # `os.stat` of a str costs half of that of a Path

    def before_batch(self) -> None:
        """Mark the file as incomplete without its log, once per opening: a small commit and a checkpoint, about 1 ms.

        While a reader prevents the checkpoint, the next batches try it again, MARK_ATTEMPTS_MAX times.
        Raises sqlite3.OperationalError if another program holds SQLite's write lock. Any other error is left to the
        batch, which meets it, too.
        """
        if self.is_marked:
            return
        try:
            self._mark_used()
        except (sqlite3.Error, OSError) as why:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            if primary_code(why) == sqlite3.SQLITE_BUSY:
                raise
            LOG.debug("%s: the log could not be marked (%s)", self.file.path.parent, why)

    def continues(self) -> bool:
        """Return whether no connection has committed since `after_batch`. 1 us. Called inside a transaction."""
        return (
            self.shm_fd is not None
            and self._header is not None
            and os.pread(self.shm_fd, _HEADER_BYTES, 0) == self._header
        )

    def after_batch(self) -> None:
        """Record where the log ends now. 6 us."""
        self.note_end()
        self.record_end()

    def note_end(self) -> None:
        """Note where the log ends now, for `continues` and `record_end`. 3 us."""
        if self.shm_fd is None:
            return
        index = os.pread(self.shm_fd, _COPIED_AT + _COPIED.size, 0)
        if len(index) < _COPIED_AT + _COPIED.size:
            return
        self._header = index[:_HEADER_BYTES]
        frames, self.pages = _WAL_INDEX.unpack_from(index)[6:8]
        first, second = _SALTS.unpack_from(index, _WAL_INDEX.size)
        (copied,) = _COPIED.unpack_from(index, _COPIED_AT)
        self.frames, self.appends = frames, frames > copied
        self._end = frames, first, second, copied

    def record_end(self) -> None:
        """Write down what `note_end` noted last. Called inside write.lock, and only if the log continues since."""
        if self._record is None or self._end is None:
            return
        (frames, first, second, copied), self._end = self._end, None
        try:
            if self._copied != (first, copied):  # only a checkpoint changes the file
                self._copied = None
                self._file_ns = os.stat(self._database).st_mtime_ns
                self._copied = (first, copied)
            self.file.write_end(self._record, frames, first, second, self._file_ns)
        except OSError:  # such as a full disk: an older record detects less
            LOG.debug("%s could not be written", self.file.path, exc_info=True)

    def release_log(self) -> None:
        """Record that the log is not needed: a checkpoint copied it into the file, or is about to do so and cut it."""
        self._end = None
        if self._record is not None:
            try:
                file_ns = os.stat(self._database).st_mtime_ns
                self.file.write(attrs.evolve(self._record, end=_NOTHING, file_ns=file_ns))
            except OSError:
                LOG.debug("%s could not be written", self.file.path, exc_info=True)

    def empty_log(self, faults: Faults) -> None:
        """Copy the log into the file, mark the file as complete, and cut the log to nothing.

        The caller knows that no other process of this library has the database open. While another program reads, the
        log stays, and so does the mark. In two steps: a file is marked only after everything before was copied.
        """
        mark = read_mark(self.connection)
        if mark is None or (not mark.used and not _size(self.file.path.with_name(f"{DATABASE}-wal"))):
            return
        if not self._checkpoint("PASSIVE"):
            return
        faults.reach(LAST_CLOSE_COPIED)
        if mark.used:
            # The checkpoint below syncs it.
            self.connection.execute("PRAGMA synchronous = NORMAL")
            self._store(attrs.evolve(mark, used=False))
        faults.reach(LAST_CLOSE_MARKED)
        if self._checkpoint("TRUNCATE"):
            self.file.write(LogRecord(mark.id, mark.id, self.clock.boot_id))

    def _mark_used(self) -> None:
        if not self._attempts_left:
            mark = read_mark(self.connection)
            if mark is None or not mark.used:
                before = _NO_ID if mark is None else mark.id
                mark = LogMark(new_id(self.clock), used=True)
                # Before the commit, and synced, so that the record knows both ids, whichever the file has after a death
                # or a power loss.
                self._record = LogRecord(mark.id, before, self.clock.boot_id)
                self.file.write(self._record, sync=True)
                self._store(mark)
                self._attempts_left = MARK_ATTEMPTS_MAX
            else:
                found = self.file.read()
                same = found if found is not None and found.id == mark.id else LogRecord(mark.id, mark.id, "")
                self._record = attrs.evolve(same, boot=self.clock.boot_id)
        if self._attempts_left:
            self._attempts_left = 0 if self._checkpoint("PASSIVE") else self._attempts_left - 1
        self.is_marked = not self._attempts_left

    def _store(self, mark: LogMark) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        store_mark(self.connection, mark)
        self.connection.execute("COMMIT")

    def _checkpoint(self, mode: str) -> bool:
        """Return whether the file has everything now, and, for TRUNCATE, the log nothing."""
        execute = self.connection.execute
        (wait_ms,) = execute("PRAGMA busy_timeout").fetchone()
        execute("PRAGMA busy_timeout = 0")
        try:
            busy, frames, copied = execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        finally:
            execute(f"PRAGMA busy_timeout = {wait_ms}")
        return not busy and frames == copied
