"""Names of scopes and streams, and ids of segments, as text."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import (
    SegmentId,
    epoch_of,
    format_segment,
    number_of,
    parse_segment,
    segment_id,
)
from eventproc.store.model.limits import SCOPE_NAME_CHARS_MAX, STREAM_NAME_CHARS_MAX
from eventproc.store.model.names import StreamName, check_scope_name, check_stream_name

PARTS = st.integers(0, 2**31 - 1)


@pytest.mark.parametrize("name", ["a", "Orders-2024.v1_x", "-", "...", "0", "a_"])
def test_a_name_of_letters_digits_and_three_signs_is_fine(name: str) -> None:
    assert (check_scope_name(name), check_stream_name(name)) == (name, name)


@pytest.mark.parametrize("name", ["", ".", "..", "_a", "a b", "a/b", "ä", "a\n", "\x00", "a:b", "١"])
def test_any_other_name_is_refused(name: str) -> None:
    for check in (check_scope_name, check_stream_name):
        with pytest.raises(InvalidArgument) as refusal:
            check(name)
        assert refusal.value.value == name


def test_a_name_may_be_as_long_as_its_limit_and_no_longer() -> None:
    for check, chars_max in (
        (check_scope_name, SCOPE_NAME_CHARS_MAX),
        (check_stream_name, STREAM_NAME_CHARS_MAX),
    ):
        assert check("n" * chars_max) == "n" * chars_max
        with pytest.raises(InvalidArgument, match=f"at most {chars_max}"):
            check("n" * (chars_max + 1))


def test_names_of_the_system_are_for_the_system() -> None:
    assert check_scope_name("_system", internal=True) == "_system"
    assert StreamName.parse("_system/request", internal=True) == StreamName("_system", "request")
    with pytest.raises(InvalidArgument, match="the system's own"):
        StreamName.parse("_system/request")


def test_a_stream_name_is_its_scope_and_its_own() -> None:
    name = StreamName.parse("shop/orders")
    assert (name.scope, name.stream, str(name)) == ("shop", "orders", "shop/orders")


@pytest.mark.parametrize("text", ["orders", "a/b/c", "shop//orders", ""])
def test_a_stream_name_has_exactly_two_parts(text: str) -> None:
    with pytest.raises(InvalidArgument, match="must look like scope/stream"):
        StreamName.parse(text)


@pytest.mark.parametrize("text", ["/orders", "shop/", "/", "shop/..", "a b/c"])
def test_both_parts_must_be_names(text: str) -> None:
    with pytest.raises(InvalidArgument):
        StreamName.parse(text)


@given(PARTS, PARTS)
def test_an_id_holds_its_number_and_its_epoch_in_text_and_as_an_integer(number: int, epoch: int) -> None:
    made = segment_id(number, epoch)
    assert (number_of(made), epoch_of(made)) == (number, epoch)
    assert parse_segment(format_segment(made)) == parse_segment(str(made)) == made


@given(PARTS, PARTS, PARTS, PARTS)
def test_ids_are_ordered_by_epoch_first(number: int, epoch: int, other: int, later: int) -> None:
    assert (segment_id(number, epoch) < segment_id(other, later)) == ((epoch, number) < (later, other))


def test_an_id_reads_as_number_and_epoch() -> None:
    assert format_segment(SegmentId(4294967298)) == "2.1"
    assert parse_segment("2.1") == parse_segment("4294967298") == 4294967298
    assert parse_segment("0") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2.",
        ".1",
        "-1",
        "2.1.0",
        "2 .1",
        "x",
        "2147483648.0",
        "0.2147483648",
        str(2**63),
        str(2**31),
        "٢.١",
    ],
)
def test_what_is_no_segment_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        parse_segment(text)
    assert refusal.value.value == text


@pytest.mark.parametrize("number, epoch", [(-1, 0), (0, -1), (2**31, 0), (0, 2**31)])
def test_an_id_beyond_its_bits_is_a_bug(number: int, epoch: int) -> None:
    with pytest.raises(AssertionError):
        segment_id(number, epoch)
