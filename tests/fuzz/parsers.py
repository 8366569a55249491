"""Parsers of Pravega's protocol, of what is stored, and of texts: a check and a maker of samples for each.

A check returns if its parser accepts the input, or refuses it with the error that its callers expect. Anything else is
a defect: another exception, or a value that differs after it was written and parsed again.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any, Final

import attrs
import pyarrow as pa
from click import ClickException

from eventproc.errors import CorruptRecord, EventprocError, InvalidArgument, InvalidCut
from eventproc.groups.position_texts import parse_group_start
from eventproc.ingestion.spec import SupervisorSpec
from eventproc.server.access.delegation import TokenKeys, TokenRefused, TokenSigner
from eventproc.server.frames import MalformedFrame
from eventproc.server.rest.positions import PositionSeal, format_position
from eventproc.server.wire.channel import Frame, parse
from eventproc.server.wire.codec import FRAME_HEAD, MESSAGES
from eventproc.server.wire.commands import AppendBlockEnd
from eventproc.server.wire.segment_names import parse_segment_name, segment_name
from eventproc.spark.ingestion.payloads import parse_payloads
from eventproc.spark.json_payloads import parse_json
from eventproc.store.access.permissions import check_pattern, covers
from eventproc.store.catalog import SYSTEM_EPOCH
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import SegmentId, format_segment, parse_segment
from eventproc.store.model.mark_bytes import decode_mark, encode_mark
from eventproc.store.segments import EventBlock
from eventproc.store.segments.columns import join_blocks
from eventproc.store.segments.extents import pack_inline, unpack_inline
from eventproc.store.segments.file_blobs import BufferRefs
from eventproc.store.segments.framed import from_frames
from eventproc.streams.position_texts import parse_position, parse_ranges, parse_segments
from tests.cli.test_input_rows import all_rows, input_of
from tests.ingestion.test_payload_columns import FIELDS, PATHS
from tests.server.test_wire_fuzz import message_of

STREAM: Final = "s/t"
TEXTS: Final = ("", "s", "s/t", "é", "0", "1.5", "null", "\0", "a" * 40)


# Pravega's protocol.


def check_wire(data: bytes) -> None:
    """A frame is a message that is the same after it was written again, of no known type, or malformed."""
    if len(data) < FRAME_HEAD.size:
        return
    kind, _ = FRAME_HEAD.unpack_from(data)
    try:
        found = parse(Frame(kind, data[FRAME_HEAD.size :]))
    except MalformedFrame:
        return
    assert found is None or type(found).decode(found.encode()[FRAME_HEAD.size :]) == found
    if isinstance(found, AppendBlockEnd):
        with suppress(EventprocError):
            assert from_frames(found.data, found.event_count).size_bytes == len(found.data)


def wire_sample(random: Random) -> bytes:
    return message_of(random.choice(list(MESSAGES.values())), random).encode()


def check_frames(data: bytes) -> None:
    """The events of a block are those that make the same block, or the block is refused."""
    try:
        found = from_frames(data)
    except InvalidArgument:
        return
    assert EventBlock([*found.block.payloads]).encode().data == data


def frames_sample(random: Random) -> bytes:
    return (
        EventBlock([random.randbytes(random.randrange(9)) for _ in range(random.randrange(1, 9))])
        .encode()
        .data
    )


# What is stored.


def check_extent(data: bytes) -> None:
    """An inline extent has the columns that it was made of, or is corrupt."""
    with suppress(CorruptRecord):
        found = unpack_inline(data)
        assert unpack_inline(pack_inline(found)) == found


def extent_sample(random: Random) -> bytes:
    count = random.randrange(1, 5)

    def column(make: Callable[[], Any]) -> list[Any] | None:
        return [random.choice((None, make())) for _ in range(count)] if random.random() < 0.5 else None

    block = EventBlock(
        [random.randbytes(random.randrange(9)) for _ in range(count)],
        keys=column(lambda: random.choice(TEXTS)),
        event_times=column(lambda: random.randrange(2**40)),
        headers=column(lambda: {random.choice(TEXTS): random.choice(TEXTS)}),
    )
    times = array("q", [random.randrange(2**40) for _ in range(count)]).tobytes()
    return pack_inline(join_blocks([block.encode()], times=random.choice((None, times))))


def check_buffers(data: bytes) -> None:
    """The places of buffers in a file are those that were stored, or the record is corrupt."""
    with suppress(CorruptRecord):
        assert BufferRefs.unpack(data).pack() == data


def buffers_sample(random: Random) -> bytes:
    refs = [(random.randrange(2**40), random.randrange(2**20)) for _ in attrs.fields(BufferRefs)[2:]]
    return BufferRefs(random.randrange(99), random.randrange(2**32), *refs).pack()


def check_mark(data: bytes) -> None:
    """A mark of time is the same after it was written again, or refused."""
    try:
        found = decode_mark(data)
    except ValueError:
        return
    assert decode_mark(encode_mark(found)) == found


def mark_sample(random: Random) -> bytes:
    borders = [0.0, *sorted(random.random() for _ in range(random.randrange(4))), 1.0]
    head = bytes((0, 0, 1, 0))
    pieces = [
        head
        + (24).to_bytes(4, "big")
        + _mark_piece(random.randrange(2**40), low, high, random.randrange(2**40))
        for low, high in pairwise(borders)
    ]
    body = random.randbytes(16) + bytes((len(pieces),)) + b"".join(pieces)
    return head + len(body).to_bytes(4, "big") + body


def _mark_piece(segment: int, low: float, high: float, offset: int) -> bytes:
    ends = array("d", (low, high))
    ends.byteswap()
    return segment.to_bytes(8, "big") + ends.tobytes() + offset.to_bytes(8, "big")


# Texts: cuts and positions, ids, names, patterns.


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def check_cut(data: bytes) -> None:
    """A cut, a position, a segment or a range has a text from which it can be read again, or is refused."""
    text = _text(data)
    with suppress(InvalidArgument, InvalidCut):
        cut = StreamCut.parse(text, STREAM)
        assert StreamCut.parse(str(cut), STREAM) == cut
    with suppress(InvalidArgument, InvalidCut):
        position = parse_position(text, STREAM, 7)
        assert parse_position(str(position), STREAM, 7) == position or position < 0  # type: ignore[operator]
    with suppress(InvalidArgument, InvalidCut):
        parse_group_start(text.split(" "), {STREAM: 7, "s/u": 8})
    with suppress(InvalidArgument):
        segment = parse_segment(text)
        assert parse_segment(format_segment(segment)) == segment
    with suppress(InvalidArgument):
        parse_segments([text])
    with suppress(InvalidArgument):
        assert parse_ranges(",".join(map(str, found := parse_ranges(text)))) == found


def cut_sample(random: Random) -> bytes:
    if random.random() < 0.3:
        times = ("2026-11-20T12:30:00Z", "2026-11-20", "1700000000000", "head", "0001-01-01T00:00:00+18:00")
        return random.choice((*times, "0-0.5,0.5-1", "2.1", "4294967298", "0.25-0.5")).encode()
    offsets = {
        SegmentId(random.randrange(9) << 32 | random.randrange(9)): random.randrange(-1, 2**40) for _ in "abc"
    }
    return str(StreamCut(STREAM, random.choice((7, 8, 2**63 - 1)), offsets)).encode()


KEY: Final = bytes(32)
SEAL: Final = PositionSeal(KEY, bytes)
SIGNER: Final = TokenSigner(TokenKeys("a2V5IG9mIHRoaXJ0eS10d28gYnl0ZXMgaW4gYmFzZTY=", 0))


def check_token(data: bytes) -> None:
    """Ids of changes, delegation tokens, names of segments and patterns are known, or refused."""
    text = _text(data)
    for sees_all in (False, True):
        with suppress(InvalidArgument):
            place = SEAL.parse(text, sees_all=sees_all)
            assert SEAL.parse(SEAL.seal(place), sees_all=False) == place
            assert format_position(place)
    with suppress(TokenRefused):
        SIGNER.verify(data.decode(errors="replace"))
    if (named := parse_segment_name(text)) is not None and named.txn is None:
        assert parse_segment_name(segment_name(named.stream, named.segment)) == named
    pattern, _, resource = text.partition(" ")
    with suppress(InvalidArgument):
        covers(check_pattern(pattern), resource)


def token_sample(random: Random) -> bytes:
    tokens = (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6IjAwIn0.eyJzdWIiOiJhIn0.c2ln",
        "eyJhbGciOiJub25lIn0.e30.",
        SEAL.seal({each: random.randrange(2**40) for each in SYSTEM_EPOCH.ids}),
        f"{random.randrange(2**50)}-{random.randrange(2**50)}",
        "s/t/3.#epoch.2",
        f"s/t/1.#epoch.0#transaction.{random.randbytes(16).hex()}",
        "s/a*b*c s/axxbyyc",
    )
    return random.choice(tokens).encode()


# JSON: payloads of events, rows of the command line, specs.

KINDS: Final = (
    *(pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32()),
    *(pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 18)),
    *(
        pa.list_(pa.int32()),
        pa.map_(pa.string(), pa.int32()),
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ),
)
COLUMNS: Final = [pa.schema([("v", each), ("_corrupt_record", pa.string())]) for each in KINDS]
ARROW_FROM: Final = 16
"""Payloads of a block that Arrow parses."""


def _shown(columns: list[pa.Array]) -> list[tuple[str, ...]]:
    # Python has no times before the year 1, and NaN differs from itself.
    plain = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in columns]
    texts = [[str(value) for value in column.to_pylist()] for column in plain]
    return list(zip(*texts, strict=True))


def check_payload(data: bytes) -> None:
    """A payload is the same row alone and in a block that Arrow reads, for Spark's source and for ingestion.

    The first byte chooses the parser and the type of its column.
    """
    if not data:
        return
    number, payload = data[0] // 2, data[1:]
    one, many = (pa.array([payload] * count, pa.binary()) for count in (1, ARROW_FROM))
    if data[0] % 2:
        (columns, wrong), (block, all_wrong) = (parse_payloads(each, FIELDS, PATHS) for each in (one, many))
        assert _shown([*block, all_wrong]) == _shown([*columns, wrong]) * ARROW_FROM
    else:
        alone, together = (parse_json(each, COLUMNS[number % len(COLUMNS)]).columns for each in (one, many))
        assert _shown([*together]) == _shown([*alone]) * ARROW_FROM


def payload_sample(random: Random) -> bytes:
    def value(depth: int) -> object:
        if depth and random.random() < 0.4:
            return [value(depth - 1)] if random.random() < 0.5 else {"a": value(depth - 1), "b": value(0)}
        return random.choice(
            (
                None,
                True,
                0,
                -1,
                2**63,
                1.5,
                1e300,
                "x",
                "2026-01-02T03:04:05Z",
                "2026-01-02",
                "12.34",
                "YWJj",
                "\ud800",
            )
        )

    names = ("v", *FIELDS.names[:4], "user", "tags", "items")
    row = {name: value(2) for name in random.sample(names, 3)}
    return bytes((random.randrange(2 * len(COLUMNS)),)) + json.dumps(row).encode()


FORMATS: Final = ("lines", "jsonl", "json", "csv", None)


def check_rows(data: bytes) -> None:
    """The rows of a file do not depend on the blocks that a pipe gives, or are refused.

    The first byte chooses the format, the second one the size of the blocks. Without a format the first block decides.
    """
    if len(data) < 2:
        return
    kind = FORMATS[data[0] % len(FORMATS)]
    found = _rows(data[2:], kind, 1 + data[1] % 7)
    assert kind is None or found == _rows(data[2:], kind, 1 << 16)


def _rows(data: bytes, kind: str | None, size: int) -> object:
    try:
        return all_rows(input_of(data, [size]), kind)
    except (ClickException, InvalidArgument) as why:
        return type(why)


def rows_sample(random: Random) -> bytes:
    texts = ('{"a":1}\n{"b":[]}\n', '[{"a":1},{"b":null}]', '{"a":\n1}\n{"b":2}', 'a,b\n1,"2"\n', "x\ny")
    return bytes((random.randrange(5), random.randrange(7))) + random.choice(texts).encode()


def check_spec(data: bytes) -> None:
    """A spec of a supervisor is the same after it was written again, or refused with the paths of what is wrong."""
    with suppress(EventprocError):
        spec = SupervisorSpec.parse(data.decode(errors="replace"))
        assert SupervisorSpec.parse(spec.text()) == spec


def spec_sample(random: Random) -> bytes:
    io: dict[str, object] = {"streams": [STREAM], "task_count": random.randrange(4)}
    schema: dict[str, object] = {
        "datasource": "d",
        "timestamp": {"column": "t", "format": random.choice(("auto", "iso", "millis"))},
        "dimensions": random.choice((["a"], [{"name": "a", "type": "long"}], [])),
        "metrics": random.choice(([], [{"type": "count", "name": "n"}])),
        "segment_granularity": random.choice(("hour", "DAY", "all")),
    }
    return json.dumps(
        {"io": io, "schema": schema, "tuning": {}, "id": random.choice(("d", "", "x/y"))}
    ).encode()
