"""The scripts in `golden/`: windows, joins and the watermark, step by step.

`windows_*.txt` and `join_*.txt` play the pure rules, `watermark_*.txt` a processor with a timer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from eventproc import App, Context, Event, Eventproc, ScalingPolicy, Stream
from eventproc.store.model.ids import format_segment, parse_segment
from eventproc.store.model.joins import (
    JoinRule,
    KeptEvent,
    KeptEvents,
    forget,
    is_late,
    keep,
    next_forgotten,
)
from eventproc.store.model.windows import (
    Span,
    WindowKind,
    closed,
    next_close,
    place,
)
from eventproc.testing import VirtualRuntime
from eventproc.windows import Hopping, Sessions, Timer, Tumbling
from tests.processors.support import GROUP, STREAM
from tests.support.golden import GoldenScript, format_time, parse_duration, parse_durations, parse_time

SCRIPTS: Final = Path(__file__).with_name("golden")


def scripts(what: str) -> list[Path]:
    found = sorted(SCRIPTS.glob(f"{what}_*.txt"))
    assert found, f"there is no script {what}_*.txt"
    return found


def names(path: object) -> str:
    assert isinstance(path, Path)
    return path.stem


class WindowPlayer:
    """Counts the events of each key in its windows, as a processor of windows does.

    The timers of keys are called with each step of the watermark. With `timers-wait` they wait behind events, for the
    step `timers`.
    """

    def __init__(self) -> None:
        self.kind: WindowKind = Tumbling(1)
        self.counts: dict[str, dict[Span, int]] = {}
        self.watermark_ms: int | None = None

    def play(self, words: list[str]) -> Iterator[str]:
        """Yield the results of a step."""
        match words:
            case ["tumbling", *options]:
                self.kind = Tumbling(**parse_durations(options))
            case ["hopping", *options]:
                self.kind = Hopping(**parse_durations(options))
            case ["sessions", *options]:
                arguments: dict[str, Any] = parse_durations(options)
                self.kind = Sessions(merge=lambda one, other: one + other, **arguments)
            case ["event", key, time]:
                yield from self._add(self.counts.setdefault(key, {}), parse_time(time))
            case ["watermark", time]:
                self.watermark_ms = parse_time(time)
                yield from self._close()
            case ["watermark", time, "timers-wait"]:
                self.watermark_ms = parse_time(time)
            case ["timers"]:
                yield from self._close()
            case ["open", key]:
                counts = self.counts[key]
                yield from (_window(span, count) for span, count in sorted(counts.items()))
                if (next_ms := next_close(self.kind, counts)) is not None:
                    yield f"the first one closes at {format_time(next_ms)}"
            case _:
                raise ValueError(" ".join(words))

    def _add(self, counts: dict[Span, int], time_ms: int) -> Iterator[str]:
        placed = place(self.kind, counts, time_ms, self.watermark_ms)
        if not placed:
            yield "late"
        for span, joined in placed:
            counts[span] = sum(counts.pop(each) for each in joined) + 1
            yield _window(span, counts[span])

    def _close(self) -> Iterator[str]:
        for key, counts in sorted(self.counts.items()):
            for span in closed(self.kind, counts, self.watermark_ms):
                yield f"closed {key} {_window(span, counts.pop(span))}"


def _window(span: Span, count: int) -> str:
    return f"[{format_time(span.begins)}, {format_time(span.ends)}) count {count}"


class JoinPlayer:
    """Joins named events, as a processor of joins does. Timers are as those of `WindowPlayer`."""

    def __init__(self) -> None:
        self.rule = JoinRule(0, 0)
        self.kept: dict[str, KeptEvents] = {}
        self.watermark_ms: int | None = None

    def play(self, words: list[str]) -> Iterator[str]:
        """Yield the results of a step."""
        match words:
            case ["join", *options]:
                self.rule = JoinRule(**parse_durations(options))
            case ["left" | "right" as side, key, time, name]:
                event = KeptEvent(parse_time(time), name)
                if is_late(self.rule, event.time, self.watermark_ms):
                    yield "late"
                    return
                is_left = side == "left"
                kept = self.kept.setdefault(key, KeptEvents())
                for each, _ in forget(self.rule, kept, self.watermark_ms, joined_only=True):
                    yield f"forgotten {key} {each.payload}"
                for partner in keep(self.rule, kept, event, is_left=is_left):
                    left, right = (event, partner) if is_left else (partner, event)
                    yield f"pair {left.payload} {right.payload}"
            case ["watermark", time]:
                self.watermark_ms = parse_time(time)
                yield from self._forget()
            case ["watermark", time, "timers-wait"]:
                self.watermark_ms = parse_time(time)
            case ["timers"]:
                yield from self._forget()
            case ["kept", key]:
                kept = self.kept[key]
                yield from (f"left {each.payload}" for each in kept.left)
                yield from (f"right {each.payload}" for each in kept.right)
                if (next_ms := next_forgotten(self.rule, kept)) is not None:
                    yield f"the first one is forgotten at {format_time(next_ms)}"
            case _:
                raise ValueError(" ".join(words))

    def _forget(self) -> Iterator[str]:
        for key, kept in sorted(self.kept.items()):
            for event, _ in forget(self.rule, kept, self.watermark_ms):
                yield f"{'forgotten' if event.has_partner else 'single'} {key} {event.payload}"


class WatermarkPlayer:
    """Writes events of the stream of a running processor, and looks at its watermark two seconds after each step.

    Events with the key "slow" are not finished before the step `finish`.
    """

    def __init__(self, ep: Eventproc, stream: Stream) -> None:
        self.ep = ep
        self.stream = stream
        self.go_on = anyio.Event()
        self.watermark_ms: int | None = None

    def app(self, idle_ms: int) -> App:
        app = App()

        async def never(timer: Timer, count: int, context: Context) -> None: ...

        @app.processor(STREAM, group=GROUP, state=int, on_timer=never, idle_ms=idle_ms)
        async def handle(event: Event, count: int) -> int:
            if event.key == "slow":
                await self.go_on.wait()
            return count + 1

        return app

    async def play(self, words: list[str]) -> list[str]:
        """Return the results of a step."""
        found: list[str] = []
        match words:
            case ["event", *pairs]:
                async with self.stream.writer() as writer:
                    for key, time in zip(pairs[::2], pairs[1::2], strict=True):
                        position = await writer.write(b"", key=key, event_time=parse_time(time))
                        found.append(f"segment {format_segment(position.segment)}")
            case ["finish"]:
                self.go_on.set()
            case ["wait", duration]:
                await anyio.sleep(parse_duration(duration) / 1_000)
            case ["split", segment]:
                await self.stream.split(parse_segment(segment))
            case ["merge", *segments]:
                await self.stream.merge(*map(parse_segment, segments))
            case ["seal"]:
                await self.stream.seal()
            case _:
                raise ValueError(" ".join(words))
        await anyio.sleep(2)
        reached_ms = (await self.ep.state(GROUP).describe()).watermark_ms
        if reached_ms != self.watermark_ms:
            assert reached_ms is not None
            self.watermark_ms = reached_ms
            found.append(f"watermark {format_time(reached_ms)}")
        return found


@pytest.mark.parametrize("path", scripts("windows"), ids=names)
def test_windows_are_as_in_the_golden_script(path: Path, request: pytest.FixtureRequest) -> None:
    script, player = GoldenScript(path), WindowPlayer()
    for words in script.steps():
        script.found(player.play(words))
    script.verify(request)


@pytest.mark.parametrize("path", scripts("join"), ids=names)
def test_joins_are_as_in_the_golden_script(path: Path, request: pytest.FixtureRequest) -> None:
    script, player = GoldenScript(path), JoinPlayer()
    for words in script.steps():
        script.found(player.play(words))
    script.verify(request)


@pytest.mark.parametrize("path", scripts("watermark"), ids=names)
async def test_the_watermark_is_as_in_the_golden_script(
    path: Path, request: pytest.FixtureRequest, eventproc_runtime: VirtualRuntime
) -> None:
    script = GoldenScript(path)
    steps = script.steps()
    kind, segments, *options = next(steps)
    assert kind == "segments"
    async with eventproc_runtime.running(streams=[]) as running:
        ep = running.ep
        await ep.create_scope("s")
        player = WatermarkPlayer(
            ep, await ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(int(segments)))
        )
        async with ep.run(player.app(**parse_durations(options))):
            for words in steps:
                script.found(await player.play(words))
    script.verify(request)
