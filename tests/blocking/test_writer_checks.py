"""What the blocking writer refuses on its caller's side, and that nothing of it is ever written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from eventproc.blocking import BlockingStream
from eventproc.store.model.errors import Closed, InvalidArgument
from eventproc.store.model.limits import (
    EVENT_BYTES_MAX,
    HEADER_NAME_CHARS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    KEY_CHARS_MAX,
)
from eventproc.streams import NewEvent

WAYS: dict[str, Callable[[Any, Any], object]] = {
    "write": lambda w, e: w.write(e.payload, key=e.key, event_time=e.event_time, headers=e.headers),
    "post": lambda w, e: w.post(e.payload, key=e.key, event_time=e.event_time, headers=e.headers),
    "write_many": lambda w, e: w.write_many([e]),
    "write_many, once": lambda w, e: w.write_many([e], sequence=1),
}

event: Any = NewEvent  # untyped, for what no type checker would let through

REFUSED: dict[str, tuple[Any, str]] = {
    "payload of another type": (event("text"), "payload"),
    "no payload": (event(None), "payload"),
    "payload too large": (event(bytes(EVENT_BYTES_MAX + 1)), "event"),
    "key of another type": (event(b"", 5), "routing key"),
    "key without a hash": (event(b"", ["k"]), "routing key"),
    "key too long": (event(b"", "k" * (KEY_CHARS_MAX + 1)), "routing key"),
    "half a surrogate pair": (event(b"", "\ud800"), "routing key"),
    "time of another type": (event(b"", None, 1.5), "event time"),
    "time that is a truth": (event(b"", None, True), "event time"),
    "time beyond 64 bits": (event(b"", None, 2**63), "event time"),
    "headers of another type": (event(b"", headers=[("a", "b")]), "headers"),
    "header of another type": (event(b"", headers={"a": 1}), "header"),
    "too many headers": (event(b"", headers={str(n): "" for n in range(HEADERS_COUNT_MAX + 1)}), "headers"),
    "name too long": (event(b"", headers={"n" * (HEADER_NAME_CHARS_MAX + 1): ""}), "header name"),
    "headers too large": (event(b"", headers={"a": "x" * HEADERS_BYTES_MAX}), "headers"),
    "half a pair in a header": (event(b"", headers={"a": "\udc00"}), "header"),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_invalid_event_is_refused_by_name_and_the_writer_continues(
    way: str, stream: BlockingStream
) -> None:
    with stream.writer(name="n") as writer:
        writer.post(b"before")
        for why, (bad, what) in REFUSED.items():
            with pytest.raises(InvalidArgument) as caught:
                WAYS[way](writer, bad)
            assert caught.value.what == what, why
        writer.post(b"after")
    with stream.reader() as reader:
        assert [event.payload for event in reader.until(stream.tail())] == [b"before", b"after"]


@pytest.mark.parametrize("bad", [5, None, b"ab", "ab", (), (b"",), (b"", "k", 5), [b"", "k"]])
@pytest.mark.parametrize("sequence", [None, 1])
def test_neither_an_event_nor_a_pair_is_refused(
    bad: object, sequence: int | None, stream: BlockingStream
) -> None:
    with stream.writer(name="n") as writer:
        write_many: Callable[..., int] = writer.write_many
        with pytest.raises(InvalidArgument, match="NewEvent, or a pair"):
            write_many([bad], sequence=sequence)
        assert writer.write_many([(b"1", "k")], sequence=1) == 1


@pytest.mark.parametrize("bad", [5, None, b"ab", "ab"])
def test_a_non_iterable_of_events_is_refused(bad: object, stream: BlockingStream) -> None:
    with stream.writer() as writer:
        write_many: Callable[..., int] = writer.write_many
        with pytest.raises(InvalidArgument, match="iterable of NewEvents"):
            write_many(bad)


@attrs.frozen
class Order:
    number: int


@pytest.mark.parametrize("opens", [BlockingStream.writer, BlockingStream.transaction])
def test_the_events_before_an_invalid_one_or_an_error_are_written(
    opens: Callable[[BlockingStream], Any], stream: BlockingStream
) -> None:
    def failing() -> Iterator[tuple[bytes, None]]:
        yield b"2", None
        raise ZeroDivisionError

    with opens(stream) as writer:
        with pytest.raises(InvalidArgument, match="payload"):
            writer.write_many([(b"1", None), ("text", None), (b"never", None)])
        with pytest.raises(ZeroDivisionError):
            writer.write_many(failing())
    with stream.reader() as reader:
        assert [each.payload for each in reader.until(stream.tail())] == [b"1", b"2"]


def test_a_payload_of_another_type_than_the_writers_is_refused(stream: BlockingStream) -> None:
    with stream.writer(payload=Order) as writer:
        post: Callable[..., None] = writer.post
        for bad in (b"1", 1, {"number": 1}):
            with pytest.raises(InvalidArgument, match="it must be Order"):
                post(bad)
    with stream.writer(payload=str) as texts, pytest.raises(InvalidArgument, match="surrogate"):
        texts.post("\ud800")
    assert stream.describe().events == 0


def test_headers_that_change_after_the_post_are_written_as_they_were(stream: BlockingStream) -> None:
    headers = {"a": "1"}
    with stream.writer() as writer:
        writer.post(b"", headers=headers)
        headers["a"] = "2"
    with stream.reader() as reader:
        assert [dict(event.headers) for event in reader.until(stream.tail())] == [{"a": "1"}]


def test_a_closed_writer_refuses_every_way_of_writing(stream: BlockingStream) -> None:
    writer = stream.writer(name="n")
    with writer:
        pass
    for write in WAYS.values():
        with pytest.raises(Closed):
            write(writer, NewEvent(b"1"))
    assert stream.describe().events == 0
