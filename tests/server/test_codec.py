"""The frames of the segment store: round trips of every message, and malformed bytes."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st

from eventproc.server.frames import MalformedFrame
from eventproc.server.wire import commands
from eventproc.server.wire.codec import (
    FRAME_HEAD,
    MESSAGES,
    Message,
)
from eventproc.server.wire.segment_names import parse_segment_name, segment_name
from tests.server.test_wire_fuzz import message_of

MESSAGE = st.builds(message_of, st.sampled_from(list(MESSAGES.values())), st.integers(0, 2**32).map(Random))


@given(MESSAGE)
def test_every_message_comes_back_as_it_was_sent(sent: Message) -> None:
    frame = sent.encode()
    kind, length = FRAME_HEAD.unpack(frame[:8])
    assert (kind, length) == (sent.type, len(frame) - 8)
    assert MESSAGES[kind].decode(frame[8:]) == sent


@given(MESSAGE, st.data())
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


def test_a_text_that_is_too_long_is_cut_between_two_characters() -> None:
    sent = commands.AuthTokenCheckFailed(1, "é" * 40_000, 0)
    found = commands.AuthTokenCheckFailed.decode(sent.encode()[8:])
    assert found == attrs.evolve(sent, trace="é" * 32_767)
