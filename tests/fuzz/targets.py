"""The parsers that read what others send or store, as the targets of `make fuzz`. Tests run each briefly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Final

import attrs

from tests.fuzz import kafka_parsers, parsers, requests

MEMORY_FACTOR: Final = 200
"""Bytes of memory that a parser may take for each byte of its input, beside `FuzzTarget.memory_bytes`."""


@attrs.frozen
class FuzzTarget:
    """A parser to be fuzzed.

    check: raises for a defect. sample: makes a well-formed input. found: inputs that were defects.
    memory_bytes: what an input of any size may take. inputs: how many a test makes of a seed.
    """

    check: Callable[[bytes], None]
    sample: Callable[[Random], bytes]
    found: tuple[bytes, ...] = ()
    memory_bytes: int = 2**22
    inputs: int = 1_000


WRONG_LENGTHS: Final = bytes.fromhex(
    "cf0708aa0400000006000000ffffffff88000000ffffffff060000000900000009"
    "00000000010000003007dd1b256feb0000005b6e756c6c5d00000000000000019e"
)
"""An inline extent with a right checksum, whose columns are longer than it."""

LARGE_NUMBER: Final = requests.rest_input(
    "POST", "/eventproc/v1/groups/{scope}", f'{{"patience_ms":{"9" * 4_000}}}'
)
"""A call with an integer that no float holds."""

TARGETS: Final[Mapping[str, FuzzTarget]] = MappingProxyType(
    {
        "wire": FuzzTarget(parsers.check_wire, parsers.wire_sample, inputs=10_000),
        "frames": FuzzTarget(parsers.check_frames, parsers.frames_sample),
        "extents": FuzzTarget(parsers.check_extent, parsers.extent_sample, (bytes(4), WRONG_LENGTHS)),
        "buffers": FuzzTarget(parsers.check_buffers, parsers.buffers_sample, (b"", bytes(8))),
        "marks": FuzzTarget(parsers.check_mark, parsers.mark_sample),
        "cuts": FuzzTarget(parsers.check_cut, parsers.cut_sample),
        "tokens": FuzzTarget(parsers.check_token, parsers.token_sample),
        "payloads": FuzzTarget(parsers.check_payload, parsers.payload_sample, inputs=150),
        "rows": FuzzTarget(parsers.check_rows, parsers.rows_sample, (b"\3\0" + b"," * 2**15,), inputs=300),
        "specs": FuzzTarget(
            parsers.check_spec,
            parsers.spec_sample,
            (b'{"io":' + b"[" * 5_000, b"a: " + b"[" * 5_000, b"a: 2026-13-45", b"!!bool x"),
        ),
        "kafka": FuzzTarget(
            *(kafka_parsers.check_request, kafka_parsers.request_sample, (kafka_parsers.NO_NAME,)),
            memory_bytes=2**25,
            inputs=500,
        ),
        "records": FuzzTarget(kafka_parsers.check_records, kafka_parsers.records_sample, memory_bytes=2**25),
        "logins": FuzzTarget(kafka_parsers.check_login, kafka_parsers.login_sample),
        "controller": FuzzTarget(
            requests.check_controller, requests.controller_sample, memory_bytes=2**25, inputs=300
        ),
        "rest": FuzzTarget(
            requests.check_rest, requests.rest_sample, (LARGE_NUMBER,), memory_bytes=2**25, inputs=300
        ),
    }
)
"""The targets by name."""
