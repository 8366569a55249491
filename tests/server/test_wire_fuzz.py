"""Malformed frames of the segment store, made from valid ones, against a connection. `tests.fuzz` has the codec."""

from __future__ import annotations

from random import Random

import anyio
import pytest

import eventproc
from eventproc.server.frames import ConnectionOver, MalformedFrame, MemoryBudget
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import (
    FRAME_HEAD,
    MESSAGES,
    PAYLOAD_BYTES_MAX,
    Attribute,
    KeyVersion,
    Message,
    WireEntry,
)
from eventproc.store.model.errors import EventprocError
from tests.server.wire_peer import WRITER, WirePeer, block, connected, framed
from tests.support.virtual_time import anyio_backend as anyio_backend

CONNECTIONS = 5
"""Connections of a seed; each gets up to 40 frames."""

SEGMENT = "s/t/0.#epoch.0"
NUMBERS = (0, 1, -1, 7, 8, 2**15, 2**31 - 1, -(2**31))
LONG_NUMBERS = (*NUMBERS, 2**63 - 1, -(2**63))
TEXTS = (
    "",
    SEGMENT,
    "s/t/1.#epoch.0",
    "s/t_kvtable/0.#epoch.0",
    f"{SEGMENT}#transaction.{'0' * 32}",
    "é" * 40,
)


def value_of(kind: str, random: Random) -> object:
    """Return a value of a field, often one at a limit."""
    data = random.randbytes(random.choice((0, 1, 8, 16, 40)))
    match kind:
        case "i32":
            return random.choice(NUMBERS)
        case "i64":
            return random.choice(LONG_NUMBERS)
        case "u8":
            return random.randrange(256)
        case "flag":
            return random.random() < 0.5
        case "text":
            return random.choice(TEXTS)
        case "uuid":
            return random.choice((WRITER, b"o" * 16, random.randbytes(16)))
        case "event":
            return framed(data)
        case "key":
            return KeyVersion(data, random.choice(LONG_NUMBERS))
        case "entry":
            return WireEntry(data, random.choice(LONG_NUMBERS), data)
        case "attribute":
            return Attribute(random.randbytes(16), random.randrange(6), *random.choices(LONG_NUMBERS, k=2))
        case _:
            return random.choice((data, framed(data), framed(data, b"")))


def message_of(kind: type[Message], random: Random) -> Message:
    def value(name: str, is_list: bool) -> object:
        if not is_list:
            return value_of(name, random)
        return tuple(value_of(name, random) for _ in range(random.randrange(4)))

    return kind(*(value(encoding.name, encoding.is_list) for _, encoding, _ in kind._fields))


def mutated(data: bytes, random: Random) -> bytes:
    """Return bytes with some of them changed, dropped or repeated; or the same."""
    changed = bytearray(data)
    for _ in range(random.randrange(4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(4):
            case 0:
                changed[at : at + 1] = random.randbytes(1)
            case 1:
                del changed[at : at + random.randrange(1, 9)]
            case 2:
                changed[at:at] = random.randbytes(random.randrange(1, 9))
            case _:
                changed[at : at + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)))
    return bytes(changed)


@pytest.mark.hunt(seeds=4)
async def test_a_connection_survives_or_ends_and_others_keep_what_was_acknowledged(seed: int) -> None:
    """Each connection ends as the protocol says, frees its memory, and leaves the stream readable."""
    random = Random(seed)
    budget = MemoryBudget(2**20)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        acknowledged = 0
        async with connected(ep, budget) as honest:
            await honest.set_up(SEGMENT)
            for _ in range(CONNECTIONS):
                async with connected(ep, budget) as peer:
                    await send_malformed(peer, random)
                    await peer.stream.aclose()
                    ended = await peer.wait_ended()
                allowed = (
                    anyio.EndOfStream,
                    anyio.IncompleteRead,
                    anyio.BrokenResourceError,
                    anyio.ClosedResourceError,
                    ConnectionOver,
                    MalformedFrame,
                    TimeoutError,
                    EventprocError,
                )
                assert isinstance(ended, allowed), repr(ended)
                await honest.ask(block(f"honest {acknowledged}".encode(), last=acknowledged), c.DataAppended)
                acknowledged += 1
        assert budget.held_bytes == 0
        async with stream.reader() as reader:
            found = [event.payload async for event in reader.until(await stream.tail())]
        ours = [each for each in found if each.startswith(b"honest")]
        assert ours == [f"honest {number}".encode() for number in range(acknowledged)]


async def send_malformed(peer: WirePeer, random: Random) -> None:
    """Send frames, some of them malformed, until the server has enough; its replies are dropped."""
    kinds = list(MESSAGES.values())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drop_replies, peer)
        for _ in range(random.randrange(1, 40)):
            kind = random.choice(kinds)
            frame = message_of(kind, random).encode()
            match random.randrange(8):
                case 0:
                    frame = mutated(frame, random)
                case 1:
                    frame = FRAME_HEAD.pack(
                        random.choice((kind.type, 0, -99)), random.choice((-1, PAYLOAD_BYTES_MAX + 1))
                    )
                case 2:
                    payload = mutated(frame[FRAME_HEAD.size :], random)
                    frame = FRAME_HEAD.pack(kind.type, len(payload)) + payload
                case _:
                    pass
            try:
                await peer.stream.send(frame)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                break
        tasks.cancel_scope.cancel()


async def drop_replies(peer: WirePeer) -> None:
    while True:
        try:
            await peer.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
