"""The figures beside other systems: docs/performance.md has all of them, and each page of docs/compare its own.

They are written between two comments. What a benchmark measures again goes into `FIGURES`, with its date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from benchmarks.cases import KAFKA_CONSUMER, KAFKA_CONSUMERS, Class

TWO_CORES: Final = "two virtual cores, a virtual disk"
BUSY: Final = (
    "two virtual cores, beside other programs (a load of 7 to 23), so that only the order of magnitude counts"
)

_GENERATED: Final = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


@attrs.frozen(kw_only=True)
class Figure:
    """What was measured of both. synced: whether acknowledged means synced. theirs_date: None if it is `date`."""

    peer: str
    what: str
    ours: str
    theirs: str
    synced: bool
    date: str
    machine: str
    command: str
    setting: str
    theirs_date: str | None = None


_KAFKA: Final = partial(
    Figure,
    peer="Kafka",
    synced=False,
    date="2026-11-23",
    theirs_date="2026-11-20",
    machine=TWO_CORES,
    setting="Kafka's broker 0.9 with librdkafka, measured beside other programs; a newer broker was not measured",
)
_ON_DECEMBER_1: Final = partial(Figure, date="2026-12-01", machine=TWO_CORES)
_AWAITED: Final = partial(
    _ON_DECEMBER_1,
    what="one event after the other, each awaited",
    command="python -m benchmarks --quick single_write",
)
_REDIS: Final = partial(
    _AWAITED,
    peer="Redis Streams",
    setting="Redis 7.0 through a socket, `appendfsync always` if synced, else `everysec`; two runs",
)
_SYNC_INTERVAL: Final = "`sync_interval: always` if synced, else the default of 2 minutes"
_NATS: Final = partial(
    _AWAITED, peer="NATS", setting=f"NATS 2.14 with nats-py 2.16, {_SYNC_INTERVAL}; two runs"
)
_NATS_AT_ONCE: Final = partial(
    _ON_DECEMBER_1,
    peer="NATS",
    what="one producer and one consumer",
    command="python -m benchmarks --quick end_to_end",
    setting="NATS likewise, 1,000 publications in flight; without syncs, its client takes nine tenths of the time",
)
_JOBS: Final = partial(
    Figure,
    what="jobs whose handler does nothing",
    date="2026-11-28",
    machine=BUSY,
    command="python -m benchmarks jobs",
    setting="Celery 5.7 and Dramatiq 2.2 with Redis 6.2, one worker of 50 threads, acknowledged after the call",
)

FIGURES: Final = (
    _KAFKA(
        what="one producer and one consumer",
        ours="454,000 events/s",
        theirs=f"{KAFKA_CONSUMER.values[Class.PAGE_CACHE]:,.0f} events/s",
        command="python -m benchmarks consumer_one",
    ),
    _KAFKA(
        what="four producers and four consumers",
        ours="332,000 events/s",
        theirs=f"{KAFKA_CONSUMERS.values[Class.PAGE_CACHE]:,.0f} events/s",
        command="python -m benchmarks consumer_four",
    ),
    _REDIS(synced=True, ours="2,012 to 2,138 events/s", theirs="2,551 to 2,896 events/s"),
    _REDIS(synced=False, ours="6,464 to 7,925 events/s", theirs="6,700 to 8,169 events/s"),
    _NATS(synced=True, ours="2,012 to 2,138 events/s", theirs="1,904 to 1,962 events/s"),
    _NATS(synced=False, ours="6,464 to 7,925 events/s", theirs="3,660 to 4,282 events/s"),
    _NATS_AT_ONCE(synced=True, ours="375,000 events/s", theirs="3,390 events/s"),
    _NATS_AT_ONCE(synced=False, ours="380,000 events/s", theirs="7,910 events/s"),
    _JOBS(synced=True, peer="Celery", ours="20,400 jobs/s", theirs="210 jobs/s"),
    _JOBS(synced=False, peer="Celery", ours="17,600 jobs/s", theirs="400 jobs/s"),
    _JOBS(synced=True, peer="Dramatiq", ours="20,400 jobs/s", theirs="2,700 jobs/s"),
    _JOBS(synced=False, peer="Dramatiq", ours="17,600 jobs/s", theirs="3,900 jobs/s"),
    _ON_DECEMBER_1(
        peer="DBOS",
        what="jobs whose handler does nothing",
        synced=True,
        ours="83,400 to 140,300 jobs/s",
        theirs="332 to 363 jobs/s",
        command="python -m benchmarks --quick jobs",
        setting="DBOS 3.4 with SQLite: workflows of a queue on 50 threads, start and result recorded; three runs",
    ),
    _ON_DECEMBER_1(
        peer="Faust",
        what="events counted by key",
        synced=True,
        ours="82,400 events/s",
        theirs="5,330 to 5,770 events/s",
        command="python -m benchmarks --quick state",
        setting="faust-streaming 0.15.3, a table in memory; its broker was `eventproc serve --kafka`; three runs",
    ),
)


def documents(root: Path) -> dict[Path, str]:
    """Return the pages with figures, as they must be."""
    pages = [root / "docs" / "performance.md", *sorted((root / "docs" / "compare").glob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return {page: _GENERATED.sub(_filled, text) for page, text in texts.items()}


def _filled(found: re.Match[str]) -> str:
    chosen = [each for each in FIGURES if found[2] in ("all", each.peer)]
    lines = _table(chosen) if chosen else ["Not measured."]
    return "\n".join([found[1], *lines, found[3]])


def _table(figures: Sequence[Figure]) -> Iterator[str]:
    yield "| measured | synced | eventproc | other system | date |"
    yield "| --- | --- | --- | --- | --- |"
    for each in figures:
        date = each.date if each.theirs_date is None else f"{each.date}; {each.peer}: {each.theirs_date}"
        synced = "yes" if each.synced else "no"
        yield f"| {each.what} | {synced} | {each.ours} | {each.peer}: {each.theirs} | {date} |"
    yield ""
    for setting in dict.fromkeys(each.setting for each in figures):
        same = [each for each in figures if each.setting == setting]
        commands = ", ".join(f"`{each}`" for each in dict.fromkeys(each.command for each in same))
        yield f"- {setting}. Machine: {same[0].machine}. Command: {commands}."
