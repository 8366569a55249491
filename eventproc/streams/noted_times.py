"""What a writer says about the time of its events: the part of a writer that notes times."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from eventproc.base.clock import new_id
from eventproc.store.catalog import find_stream, get_writable_stream
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int, invalid_argument
from eventproc.store.model.errors import WriterFenced
from eventproc.store.openable import Openable
from eventproc.store.segments import last_sequence
from eventproc.streams.sends import Send


class NotesTime(Openable):
    """Base of a writer: the times that it notes, until it is closed."""

    _db: Database
    _stream: str
    _stream_id: int
    _name: str | None
    _sequence: int
    _sending: Send | None
    _noted_as: str | None = None
    """Under which name it has noted a time."""

    @abstractmethod
    async def flush(self) -> None:
        """Return when everything posted so far is durable."""

    @abstractmethod
    def _verify_open(self) -> None: ...

    async def note_time(self, time: int) -> None:
        """Say that no event that this writer writes from now on is older; readers see it as `time_window`.

        Waits, as `flush`, until everything posted so far is durable, but not for delayed events and open transactions,
        which may be appended later. A writer counts until it is closed, or for a minute after its last note. Readers
        see at most one change of a stream's time in a second.

        Args:
            time: an event time, in ms; not before the last one that this writer, or its name, has noted.

        Raises:
            InvalidArgument: the time is no int of 64 bits, or goes back.
            StreamSealed: the stream is sealed.
            NotFound, StreamReplaced, WriterFailed, WriterFenced, DiskFull, LockHeld, Closed: as for `write`.

        Cost:
            One write.
        """
        time = check_int("time", time)
        self._verify_open()
        await self.flush()
        self._verify_open()  # a note of a writer that was closed meanwhile would hold the time up
        if self._noted_as is None:
            self._noted_as = self._name or new_id(self._db.clock)
        if not await self._db.write(partial(self._note, self._noted_as, time), brief=True):
            raise invalid_argument("time", time, "this writer has noted a later one")

    async def _flush_last(self) -> None:
        """Flush, and hold the time of the stream up no longer."""
        try:
            await self.flush()
        finally:
            if self._noted_as is not None:
                await self._db.write(partial(self._forget, self._noted_as), brief=True)

    def _note(self, writer: str, time: int, tx: Tx) -> bool:
        """Note the time at the tail: all events of this writer are before it, and none of those to come.

        Returns whether it was accepted.
        """
        from eventproc.store.marks import note_at_tail  # few programs need it
        from eventproc.store.model.time_marks import NoteVerdict

        stream = get_writable_stream(tx, self._stream, stream_id=self._stream_id).value
        if self._is_fenced(tx):
            raise WriterFenced(stream=self._stream, writer=writer)
        return note_at_tail(tx, stream, writer, time) is NoteVerdict.ACCEPTED

    def _forget(self, writer: str, tx: Tx) -> None:
        from eventproc.store.marks import forget_writer_note  # few programs need it

        found = find_stream(tx, self._stream)
        if found is not None and found.value.stream_id == self._stream_id and not self._is_fenced(tx):
            forget_writer_note(tx, found.value, writer)

    def _is_fenced(self, tx: Tx) -> bool:
        """Return whether another writer of this name has written since, which the note of the name belongs to then."""
        # A send that is on its way may have moved the sequence already. It finds out by itself.
        return (
            self._name is not None
            and self._sending is None
            and last_sequence(tx, self._stream_id, self._name) > self._sequence
        )
