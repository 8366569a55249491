"""The frames of the segment store: round trips of every message, and malformed bytes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventproc.server.wire import commands
from eventproc.server.wire.codec import (
    FRAME_HEAD,
    MESSAGES,
    Attribute,
    KeyVersion,
    MalformedFrame,
    Message,
    WireEntry,
)
from eventproc.server.wire.segment_names import parse_segment_name, segment_name

I64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": I64,
    "u8": st.integers(0, 255),
    "flag": st.booleans(),
    "text": st.text(max_size=20),
    "uuid": st.binary(min_size=16, max_size=16),
    "block": st.binary(max_size=20),
    "rest": st.binary(max_size=20),
    "event": st.binary(max_size=9).map(lambda data: len(data).to_bytes(8, "big") + data),
    "key": st.builds(KeyVersion, st.binary(max_size=9), I64),
    "entry": st.builds(WireEntry, st.binary(max_size=9), I64, st.binary(max_size=9)),
    "attribute": st.builds(Attribute, st.binary(min_size=16, max_size=16), st.integers(0, 255), I64, I64),
}


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(
        kind,
        *[
            st.lists(VALUES[encoding.name], max_size=3).map(tuple)
            if encoding.is_list
            else VALUES[encoding.name]
            for _, encoding, _ in kind._fields
        ],
    )


@given(st.sampled_from(list(MESSAGES.values())).flatmap(messages))
def test_every_message_comes_back_as_it_was_sent(sent: Message) -> None:
    frame = sent.encode()
    kind, length = FRAME_HEAD.unpack(frame[:8])
    assert (kind, length) == (sent.type, len(frame) - 8)
    assert MESSAGES[kind].decode(frame[8:]) == sent


@given(st.sampled_from(list(MESSAGES.values())), st.binary(max_size=80))
def test_malformed_bytes_are_refused_and_nothing_else_happens(kind: type[Message], data: bytes) -> None:
    try:
        kind.decode(data)
    except MalformedFrame:
        pass


@given(st.sampled_from(list(MESSAGES.values())).flatmap(messages), st.data())
def test_a_frame_may_end_before_its_optional_fields_only(sent: Message, data: st.DataObject) -> None:
    frame = sent.encode()[8:]
    cut = data.draw(st.integers(0, len(frame)))
    try:
        found = type(sent).decode(frame[:cut])
    except MalformedFrame:
        return
    for field in attrs.fields(type(sent)):
        if field.default is attrs.NOTHING and field.name not in ("data", "token"):
            assert getattr(found, field.name) == getattr(sent, field.name)


def test_names_of_segments_are_those_of_the_reference() -> None:
    found = parse_segment_name("s/t/3.#epoch.2#transaction." + "0" * 31 + "a")
    assert found is not None
    assert (found.stream, found.segment, found.txn) == ("s/t", 2 << 32 | 3, "0" * 31 + "a")
    assert segment_name("s/t", found.segment) == "s/t/3.#epoch.2"


@pytest.mark.parametrize(
    "name", ["", "s/t", "s/t/1.0", "s/t/9999999999.#epoch.0", "s/t/0.#epoch.0#transaction.x"]
)
def test_other_names_are_of_no_segment(name: str) -> None:
    assert parse_segment_name(name) is None


def test_a_hello_is_the_one_of_the_reference() -> None:
    assert commands.Hello(17, 5).encode().hex() == "ffffff81000000080000001100000005"
