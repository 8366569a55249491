"""What handlers emit: refused where it is made, appended whole or not at all, routed by the segments of that moment."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, cast

import pytest

import eventproc
from eventproc.processors.emit import Emission, append_emissions
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import InvalidArgument, NotFound, StreamSealed
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.model.routing import point
from eventproc.streams import Stream
from tests.support.memory import ep as ep  # a fixture
from tests.support.reading import events_of


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))


async def emit(ep: Eventproc, *emissions: Emission) -> None:
    await ep.db.write(partial(append_emissions, emissions=emissions))


async def extent_count(ep: Eventproc) -> int:
    def count(tx: Tx) -> int:
        row = tx.execute("SELECT count(*) FROM extent WHERE stream_id > 3").fetchone()
        return int(row[0])

    return await ep.db.read(count)


async def test_what_is_emitted_is_read_back_as_it_was(ep: Eventproc, stream: Stream) -> None:
    headers = {"trace": "1"}
    made = Emission.make("s/t", b"1", key="k", event_time=-5, headers=headers)
    headers["trace"] = "changed afterwards"
    await emit(
        ep,
        made,
        Emission.make("s/t", cast("bytes", bytearray(b"2")), key="k"),
        Emission.make("s/t", b"3", key="k", headers={}),
    )
    found = [
        (each.payload, each.key, each.event_time, dict(each.headers)) for each in await events_of(stream)
    ]
    assert found == [(b"1", "k", -5, {"trace": "1"}), (b"2", "k", None, {}), (b"3", "k", None, {})]


async def test_keys_go_to_the_segments_that_are_active_when_they_are_appended(
    ep: Eventproc, stream: Stream
) -> None:
    made = [Emission("s/t", str(number).encode(), f"k{number % 40}") for number in range(400)]
    await emit(ep, *made[:200])
    await stream.split(0)
    await emit(ep, *made[200:])
    epochs = await stream.epochs()
    found = await events_of(stream)
    assert len(found) == 400
    for event in found:
        epoch = epochs[int(event.payload) // 200]
        assert event.key is not None
        assert event.segment == epoch.find(point(event.key)).id
    for key in {event.key for event in found}:
        numbers = [int(event.payload) for event in found if event.key == key]
        assert numbers == sorted(numbers)


async def test_one_transaction_makes_one_append_per_segment_for_all_events(
    ep: Eventproc,
) -> None:
    for name in ("a", "b"):
        await ep.create_stream(f"s/{name}", scaling=eventproc.ScalingPolicy.fixed(3))
    made = [Emission(f"s/{'ab'[number % 2]}", b"x" * 100, f"k{number}") for number in range(2000)]
    await emit(ep, *made)
    assert await extent_count(ep) == 6


async def test_events_without_a_key_are_spread_over_the_segments_by_and_by(
    ep: Eventproc, stream: Stream
) -> None:
    for number in range(40):
        await emit(ep, Emission("s/t", b"%d" % number), Emission("s/t", b"again"))
    assert {event.segment for event in await events_of(stream)} == {
        segment.id for segment in await stream.segments()
    }
    assert await extent_count(ep) == 40


async def test_nothing_is_appended_when_one_stream_is_missing_or_sealed(
    ep: Eventproc, stream: Stream
) -> None:
    sealed = await ep.create_stream("s/sealed")
    await sealed.seal()
    for name, error in [
        ("s/none", NotFound(kind="stream", name="s/none")),
        ("none/t", NotFound(kind="scope", name="none")),
        ("s/sealed", StreamSealed(stream="s/sealed")),
    ]:
        with pytest.raises(type(error)) as caught:
            await emit(ep, Emission("s/t", b"1", "k"), Emission(name, b"2", "k"))
        assert str(caught.value) == str(error)
    assert await events_of(stream) == []


async def test_an_emission_exists_exactly_when_the_rest_of_its_transaction_does(
    ep: Eventproc, stream: Stream
) -> None:
    def fail(tx: Tx) -> None:
        append_emissions(tx, [Emission("s/t", b"1", "k")])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ep.db.write(fail)
    await emit(ep)
    assert await events_of(stream) == []


@pytest.mark.parametrize(
    ("stream", "payload", "options"),
    [
        ("t", b"", {}),
        (5, b"", {}),
        ("_system/request", b"", {}),
        ("s/t", NotImplemented, {}),
        ("s/t", 1j, {}),
        ("s/t", "text", {"codec": 5}),
        ("s/t", bytes(EVENT_BYTES_MAX + 1), {}),
        ("s/t", b"", {"key": 5}),
        ("s/t", b"", {"key": "\ud800"}),
        ("s/t", b"", {"key": "k" * 100_000}),
        ("s/t", b"", {"event_time": 2**63}),
        ("s/t", b"", {"headers": {"a": 1}}),
        ("s/t", b"", {"headers": {"a": "\ud800"}}),
    ],
    ids=lambda argument: repr(argument)[:40],
)
def test_what_no_event_may_be_is_refused_where_it_is_emitted(
    stream: str, payload: bytes, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        Emission.make(stream, payload, **options)


@dataclasses.dataclass
class Order:
    item: str


class Backwards:
    """A codec of text, as a user writes one."""

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, payload: bytes) -> str:
        return payload.decode()[::-1]


@pytest.mark.parametrize(
    ("payload", "codec", "expected"),
    [
        (b"raw", None, b"raw"),
        (bytearray(b"raw"), None, b"raw"),
        ("zwölf", None, "zwölf".encode()),
        (Order("pear"), None, b'{"item":"pear"}'),
        ("abc", Backwards(), b"cba"),
    ],
)
def test_a_payload_is_encoded_by_the_codec_of_its_class_or_the_one_given(
    payload: object, codec: Backwards | None, expected: bytes
) -> None:
    assert Emission.make("s/t", payload, codec=codec).payload == expected


async def test_a_stream_handle_takes_payloads_of_its_type(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/orders", payload=Order)
    emission = Emission.make(stream, Order("pear"), key="k")
    assert emission == Emission("s/orders", b'{"item":"pear"}', "k")
    with pytest.raises(InvalidArgument, match="it must be Order"):
        Emission.make(stream, b"raw")


def test_an_emission_knows_what_it_takes_in_its_segment() -> None:
    assert Emission("s/t", b"four").size_bytes == 12
