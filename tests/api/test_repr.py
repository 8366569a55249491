"""The `repr` of every public object names it on one line, and shows no more of a payload than its beginning."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final, is_typeddict

import attrs
import pytest

import eventproc
from eventproc import Event, EventprocError, NewEvent, blocking, describe, ingestion
from eventproc.store.model.ids import SegmentId
from eventproc.testing import run_seeded

CHARS_MAX: Final = 6_000
"""Longest `repr` of a description with many fields, all of them huge."""

HUGE: Final[tuple[object, ...]] = (
    b"x" * 1_000_000,
    "x" * 1_000_000,
    tuple(range(10_000)),
    dict.fromkeys(range(10_000)),
    MappingProxyType(dict.fromkeys(range(10_000), "x" * 100)),
    tuple(NewEvent(b"x" * 10_000) for _ in range(100)),
)

VALIDATED: Final = {
    "AppendResult",
    "AutoscalerConfig",
    "Backlog",
    "BackupResult",
    "Blocker",
    "CallDurations",
    "CreateStream",
    "DeleteScope",
    "DeleteStream",
    "GroupOptions",
    "GroupStream",
    "KeyRange",
    "LetterCount",
    "MemberDescription",
    "MemberStatus",
    "OffloadResult",
    "PartitionDescription",
    "PartitionPosition",
    "PastScale",
    "PicturePosition",
    "PictureSegment",
    "ProcessorMember",
    "ProcessorStatus",
    "ReplicatedType",
    "RetryPolicy",
    "ScalingPolicy",
    "ScopeInfo",
    "SealStream",
    "Segment",
    "SegmentDescription",
    "SegmentLag",
    "SegmentOwnership",
    "ShareOptions",
    "StreamConfig",
    "StreamInfo",
    "StreamSize",
    "TopicInfo",
    "TuningConfig",
    "UpdateStream",
}
"""Values whose fields are few, and bounded by what the library accepts or writes: names, numbers, texts of errors."""


def public_classes() -> dict[str, type]:
    modules = (eventproc, describe, ingestion, blocking)
    found = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {name: kind for name, kind in found.items() if inspect.isclass(kind)}


def is_value(kind: type) -> bool:
    return attrs.has(kind) and not issubclass(kind, BaseException)


VALUES: Final = {name: kind for name, kind in public_classes().items() if is_value(kind)}
OBJECTS: Final = {
    name: kind
    for name, kind in public_classes().items()
    if not (
        is_value(kind)
        or issubclass(kind, (enum.Enum, EventprocError))
        or getattr(kind, "_is_protocol", False)
        or is_typeddict(kind)
        or kind is SegmentId
        or kind is Event
    )
}


def test_every_public_class_describes_itself() -> None:
    unnamed: object = object.__repr__
    silent = [name for name, kind in (VALUES | OBJECTS).items() if getattr(kind, "__repr__") is unnamed]  # noqa: B009
    assert silent == []


@pytest.mark.parametrize("name", sorted(VALUES.keys() - VALIDATED))
@pytest.mark.parametrize("huge", HUGE, ids=lambda huge: type(huge).__name__)
def test_the_repr_of_a_value_is_short_whatever_its_fields_hold(name: str, huge: object) -> None:
    kind: Any = VALUES[name]
    value = kind.__new__(kind)
    for field in attrs.fields(kind):
        object.__setattr__(value, field.name, huge)
    text = repr(value)
    assert text.startswith(f"{name}(")
    assert "\n" not in text
    assert len(text) < CHARS_MAX


def test_the_repr_of_an_event_shows_the_beginning_of_its_payload() -> None:
    event = Event(b"x" * 100_000, "ana", 1, None, "s/t", SegmentId(0), 0, 0, MappingProxyType({"a": "b"}))
    text = repr(event)
    assert text.startswith("Event(payload=b'xxx")
    assert "(100000 bytes), key='ana'" in text
    assert "headers={'a': 'b'}" in text
    assert len(text) < 400


def objects_of(ep: eventproc.Eventproc) -> Iterator[object]:
    yield from (ep, ep.requests, ep.dead_letters("shop/billing"), eventproc.open_memory())


def test_the_repr_of_an_object_names_it_and_its_state() -> None:
    app, seen = eventproc.App(), list[str]()

    @app.processor("shop/orders", group="mailer")
    async def mail(event: Event, context: eventproc.Context) -> None:
        seen.append(repr(context))

    @app.setup
    def set_up(tx: eventproc.AppTx) -> None:
        seen.append(repr(tx).partition("=")[0])

    async def main() -> None:
        async with eventproc.open_memory() as ep:
            await ep.create_scope("shop")
            orders = await ep.create_stream("shop/orders")
            group = await ep.create_group("billing", ["shop/orders"])
            writer, reader, member = orders.writer(), orders.reader(), group.reader("r1")
            assert repr(writer) == "EventWriter('shop/orders', not open)"
            async with writer, reader, member, ep.run(app) as running:
                await writer.write(b"apple")
                async for batch in reader.batches(until=await orders.tail()):
                    assert repr(batch) == "Batch(1 events, 13 bytes)"
                await running.wait_idle()
                assert [repr(each) for each in (*objects_of(ep), orders, group)] == [
                    "Eventproc(':memory:', open)",
                    "Requests(':memory:')",
                    "DeadLetters('shop/billing')",
                    "Opening(a system in memory)",
                    "Stream('shop/orders')",
                    "Group('shop/billing')",
                ]
                assert [repr(each) for each in (writer, reader, member, running, app)] == [
                    "EventWriter('shop/orders', open)",
                    "StreamReader('shop/orders', open)",
                    "GroupReader('shop/billing', 'r1', open)",
                    "Running(mail; open)",
                    "App(mail)",
                ]
            assert repr(writer) == "EventWriter('shop/orders', closed)"
        assert repr(ep) == "Eventproc(':memory:', closed)"
        assert seen == ["AppTx(now_ms", "Context(attempt=1)"]

    run_seeded(main, seed=1)
