"""One connection of a client of Kafka: requests are carried out and answered in order, one at a time.

Only batches of producers wait for their commit together: the next ones are read and decoded meanwhile, and those that
wait share a transaction.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

import anyio
import attrs

from eventproc.server.access.authority import NotAuthenticated, TooManyPasswords
from eventproc.server.frames import PIECE_BYTES, STALLED_S, ConnectionOver, FrameChannel
from eventproc.server.kafka import calls as c
from eventproc.server.kafka.answers import KafkaAnswers
from eventproc.server.kafka.codec import UnsupportedApiVersions, parse_request, versions_answer
from eventproc.server.kafka.codec.message import LENGTH, KafkaRequest, encode_answer
from eventproc.server.kafka.codec.topics import produce_answer
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.server.kafka.produce import BatchAppender, DecodedBatch
from eventproc.server.kafka.sasl import SASL_MECHANISMS, SaslSession
from eventproc.server.strangers import Stranger

WAITING_MAX: Final = 64
"""Requests of a producer that wait for their commit. Clients have 5 in flight by default."""


class _WaitingBatches(NamedTuple):
    """The batches of a request that is not answered yet. held_bytes: the memory that they hold."""

    request: KafkaRequest
    batches: list[DecodedBatch]
    held_bytes: int

    @property
    def needs_answer(self) -> bool:
        call = self.request.call
        return isinstance(call, c.Produce) and call.needs_answer


@attrs.define(eq=False)
class KafkaConnection:
    """Serves one connection. sasl: who the client is. answers: to the calls that neither append nor greet."""

    _channel: FrameChannel
    _sasl: SaslSession
    _stranger: Stranger
    _appender: BatchAppender
    _answers: KafkaAnswers
    _takes_bare: bool = attrs.field(default=False, init=False)
    _waiting: list[_WaitingBatches] = attrs.field(factory=list, init=False)
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def serve(self) -> None:
        """Serve until the peer leaves, which raises EndOfStream, or must be left, which raises why."""
        if self._sasl.is_required:
            self._channel.limit_frames()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._append_waiting)
                try:
                    while True:
                        await self._handle_next()
                except (anyio.EndOfStream, anyio.IncompleteRead):
                    # What arrived is appended: a producer that wants no answers leaves when it has sent.
                    with anyio.move_on_after(STALLED_S):
                        await self._appended()
                    raise
        finally:
            await self._channel.memory.give_back_all()

    async def _handle_next(self) -> None:
        (length,) = LENGTH.unpack(await self._channel.receive_head(LENGTH.size))
        if not self._channel.memory.has_room(length):
            await self._appended()
        frame, held_bytes = await self._channel.receive_payload(length)
        held_bytes = await self._handle(frame, held_bytes)
        await self._channel.memory.give_back(held_bytes)  # an error ends the connection, which gives back all

    async def _handle(self, frame: bytes, held_bytes: int) -> int:
        """Answer a request, or let its batches wait; return the memory of the frame that nothing needs any more."""
        if self._takes_bare:
            await self._send(await self._take_bare(frame))
            return held_bytes
        try:
            request = parse_request(frame)
        except UnsupportedApiVersions as why:  # a newer client than this server; it asks again (KIP-511)
            await self._appended()
            await self._send(versions_answer(why.request, KafkaCode.UNSUPPORTED_VERSION))
            return held_bytes
        call = request.call
        if isinstance(call, c.Produce):
            batches = await self._appender.decode(call, await self._sasl.caller())
            # What the batches became beyond the bytes of the frame, if it is more.
            grown_bytes = max(sum(each.size_bytes for each in batches) - len(frame), 0)
            if not self._channel.memory.has_room(grown_bytes):
                await self._appended()
            await self._channel.memory.take(grown_bytes)
            self._waiting.append(_WaitingBatches(request, batches, held_bytes + grown_bytes))
            self._note_change()
            while len(self._waiting) >= WAITING_MAX:
                await self._changed.wait()
            return 0
        await self._appended()
        await self._send(await self._answer(request))
        return held_bytes

    def _note_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _appended(self) -> None:
        """Wait until the batches of all earlier requests are answered."""
        while self._waiting:
            await self._changed.wait()

    async def _append_waiting(self) -> None:
        """Append what waits, together, and answer it, until cancelled. Raises ConnectionOver."""
        while True:
            while not self._waiting:
                await self._changed.wait()
            together = self._waiting[:]
            produced = iter(await self._appender.append([each for one in together for each in one.batches]))
            answers = b""  # sent together: a call of the system costs more than an answer
            unsaid: c.BatchAnswer | None = None
            for one in together:
                batches = list(islice(produced, len(one.batches)))
                if one.needs_answer:
                    answers += produce_answer(one.request, batches)
                else:
                    unsaid = next((each for each in batches if each.code != KafkaCode.NONE), unsaid)
                if answers and (len(answers) >= PIECE_BYTES or one is together[-1]):
                    await self._send(answers)
                    answers = b""
                await self._channel.memory.give_back(one.held_bytes)
            if unsaid is not None:
                # As a broker does: the producer notices it, and asks again where the topic is.
                what = f"a batch for {unsaid.place.topic}, which wants no answer"
                raise ConnectionOver(f"{what}, is refused: {unsaid.text or unsaid.code.name}")
            del self._waiting[: len(together)]
            self._note_change()

    async def _send(self, answer: bytes) -> None:
        async with self._channel.sending:
            await self._channel.send_frame(answer)

    async def _answer(self, request: KafkaRequest) -> bytes:
        """Carry a request out, and return its answer."""
        match request.call:
            case c.ApiVersions():
                return versions_answer(request)
            case c.SaslHandshake(mechanism, is_bare):
                code = self._sasl.choose(mechanism)
                self._takes_bare = is_bare and code == KafkaCode.NONE
                return encode_answer(request, error_code=int(code), mechanisms=[*SASL_MECHANISMS])
            case c.SaslAuthenticate(data):
                return await self._authenticate(request, data)
            case _:
                return await self._answers.answer(request, await self._sasl.caller())

    async def _authenticate(self, request: KafkaRequest, data: bytes) -> bytes:
        """Answer a message of the mechanism."""
        code, text, reply = KafkaCode.NONE, None, b""
        try:
            reply = await self._take(data)
        except (NotAuthenticated, TooManyPasswords) as why:
            code, text = KafkaCode.SASL_AUTHENTICATION_FAILED, str(why)
        return encode_answer(request, error_code=int(code), error_message=text, auth_bytes=reply)

    async def _take_bare(self, data: bytes) -> bytes:
        """Return the answer to a message of the mechanism without a call. Raises ConnectionOver: it has no errors."""
        try:
            reply = await self._take(data)
        except (NotAuthenticated, TooManyPasswords) as why:
            raise ConnectionOver(str(why)) from None
        return LENGTH.pack(len(reply)) + reply

    async def _take(self, data: bytes) -> bytes:
        """Return the reply to a message of the mechanism. Raises NotAuthenticated, TooManyPasswords."""
        reply, is_known = await self._sasl.take(data)
        if is_known:
            self._takes_bare = False
            self._stranger.accept()
            self._channel.accept_frames()
        return reply
