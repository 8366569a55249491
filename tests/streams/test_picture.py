"""The picture of a stream: rectangles over time and keys, what is truncated, and where groups are."""

from __future__ import annotations

from contextlib import aclosing
from xml.etree import ElementTree

import pytest

import eventproc
from eventproc import Eventproc, Stream, to_dict
from eventproc.describe import StreamPicture
from eventproc.errors import InvalidArgument
from eventproc.testing import VirtualClock

SECOND_MS = 1_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


async def write(stream: Stream, clock: VirtualClock, count: int) -> list[int]:
    """Write an event a second, and return their times."""
    times: list[int] = []
    async with stream.writer() as writer:
        for number in range(count):
            times.append((await writer.write(b"%d" % number, key="k")).timestamp)
            clock.advance(SECOND_MS)
    return times


async def scaled(ep: Eventproc, clock: VirtualClock) -> tuple[Stream, list[int]]:
    """Return a stream that was split after four events, and has three in one of the parts; and their times."""
    await ep.create_scope("s")
    stream = await ep.create_stream("s/t")
    times = await write(stream, clock, 4)
    await stream.split(0, 2)
    return stream, times + await write(stream, clock, 3)


def shapes(picture: StreamPicture, name: str) -> list[ElementTree.Element]:
    return [*ElementTree.fromstring(picture.svg()).iter(f"{SVG}{name}")]


async def test_each_segment_is_a_rectangle_from_its_creation_to_its_seal(clock: VirtualClock) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        stream, times = await scaled(ep, clock)
        picture = await stream.plot()
        begun, split = [each.created_ms for each in await stream.scales()]
        assert (picture.from_ms, picture.left_out) == (begun, 0)
        assert times[-1] < picture.to_ms <= clock.wall_ms()
        assert [(str(each.segment), each.low, each.high) for each in picture.segments] == [
            ("0.0", 0.0, 1.0),
            ("1.1", 0.0, 0.5),
            ("2.1", 0.5, 1.0),
        ]
        first, *others = picture.segments
        assert (first.from_ms, first.to_ms, first.truncated_ms, first.events) == (begun, split, None, 4)
        assert first.events_per_second == round(4_000 / (split - begun), 3)
        assert [(each.from_ms, each.to_ms) for each in others] == [(split, None)] * 2
        assert sorted(each.events or 0 for each in others) == [0, 3]
        assert times[3] < split <= times[4]
        assert len(shapes(picture, "rect")) == 3


async def test_what_is_truncated_is_pale_up_to_the_first_event_that_is_kept(clock: VirtualClock) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        stream, times = await scaled(ep, clock)
        await stream.truncate(await stream.cut_at(times[2]))
        first, *others = (await stream.plot()).segments
        assert first.truncated_ms == times[2]
        assert [each.truncated_ms for each in others] == [None, None]
        await stream.truncate(await stream.tail())
        first, *others = (await stream.plot()).segments
        assert first.truncated_ms == first.to_ms
        pale = [each for each in shapes(await stream.plot(), "rect") if each.get("fill-opacity") == "0.3"]
        assert len(pale) == 2, "the part without events has nothing to truncate"


async def test_groups_stand_at_the_first_event_that_they_have_not_finished(clock: VirtualClock) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        stream, times = await scaled(ep, clock)
        behind = await ep.create_group("behind", [stream])
        done = await ep.create_share_group("done", [stream], start="tail")
        async with behind.reader("r") as reader, aclosing(aiter(reader)) as events:
            for _ in range(2):
                await anext(events)
            await reader.commit()
        found = {
            group.name: [each.at_ms for each in (await stream.plot()).positions if each.group == group.name]
            for group in (behind, done)
        }
        assert found["s/behind"] == [times[2]]
        assert len(found["s/done"]) == 2 and min(found["s/done"]) > times[-1], "it stands at now"
        titles = [each.findtext(f"{SVG}title") for each in shapes(await stream.plot(), "path")]
        assert titles == ["s/behind", "s/done"]


async def test_a_part_of_the_time_has_the_segments_that_lived_in_it(clock: VirtualClock) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        stream, times = await scaled(ep, clock)
        before = await stream.plot(to_ms=times[1])
        assert [str(each.segment) for each in before.segments] == ["0.0"]
        assert before.segments[0] == (await stream.plot()).segments[0], (
            "its seal and its rate are those of its life"
        )
        after = await stream.plot(times[5])
        assert [str(each.segment) for each in after.segments] == ["1.1", "2.1"]
        assert after.from_ms == times[5]
        with pytest.raises(InvalidArgument):
            await stream.plot(times[1], times[0])


async def test_a_topic_has_its_partitions_and_a_notebook_shows_them(clock: VirtualClock) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        picture = await (await ep.create_topic("s/t", partitions=3)).plot()
        assert len(picture.segments) == len(shapes(picture, "rect")) == 3
        assert picture._repr_html_() == picture.svg()
        assert to_dict(picture)["segments"][0]["events"] == 0
