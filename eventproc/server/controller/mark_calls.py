"""The controller's calls about the time of a stream's events: notes of writers, and writers that end."""

from __future__ import annotations

from typing import Final

from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import cut_of, name_of
from eventproc.store.catalog import find_stream, get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.marks import forget_writer_note, note_time
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.limits import ID_CHARS_MAX
from eventproc.store.model.time_marks import NoteVerdict, is_writer_name

_ANSWERS: Final = {
    NoteVerdict.ACCEPTED: pb.TimestampResponse.SUCCESS,
    NoteVerdict.TIME_BACK: pb.TimestampResponse.INVALID_TIME,
    NoteVerdict.POSITION_BACK: pb.TimestampResponse.INVALID_POSITION,
}


class MarkCalls:
    """Answers calls of writers that note times."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def note(self, request: pb.TimestampFromWriter) -> pb.TimestampResponse:
        """Note the time of a writer at its position.

        Raises NotFound for a missing stream, as Pravega's controller, and InvalidArgument for the name of a writer.
        """
        if not is_writer_name(request.writer):
            reason = f"it must have at most {ID_CHARS_MAX} characters, and none of them zero"
            raise invalid_argument("writer", request.writer, reason)
        name, offsets = name_of(request.position.streamInfo), cut_of(request.position.cut)

        def note(tx: Tx) -> NoteVerdict:
            return note_time(tx, get_stream(tx, name).value, request.writer, request.timestamp, offsets)

        return pb.TimestampResponse(result=_ANSWERS[await self.db.write(note, brief=True)])

    async def remove_writer(self, request: pb.RemoveWriterRequest) -> pb.RemoveWriterResponse:
        """Leave a writer out of further marks. The numbers of silent writers are dropped in the background."""
        answer = pb.RemoveWriterResponse

        def remove(tx: Tx) -> pb.RemoveWriterResponse.Status:
            if (stream := find_stream(tx, name_of(request.stream))) is None:
                return answer.STREAM_DOES_NOT_EXIST
            has_noted = is_writer_name(request.writer) and forget_writer_note(
                tx, stream.value, request.writer
            )
            return answer.SUCCESS if has_noted else answer.UNKNOWN_WRITER

        return answer(result=await self.db.write(remove, brief=True))
