"""Intervals of the segment granularity: what a file holds the rows of, and what is dropped and overwritten. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Final, TypeAlias

from eventproc.ingestion.spec import Granularity
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.delays import utc_ms
from eventproc.store.model.ingestion import TIME_END_MS, TIME_MIN_MS, TableFile

FIXED_MS: Final[Mapping[Granularity, int]] = {
    Granularity.SECOND: 1_000,
    Granularity.MINUTE: 60_000,
    Granularity.FIVE_MINUTE: 300_000,
    Granularity.TEN_MINUTE: 600_000,
    Granularity.FIFTEEN_MINUTE: 900_000,
    Granularity.THIRTY_MINUTE: 1_800_000,
    Granularity.HOUR: 3_600_000,
    Granularity.SIX_HOUR: 21_600_000,
    Granularity.DAY: 86_400_000,
}
"""Granularities of a fixed length, counted from 1970-01-01 in UTC. Months and years follow the calendar."""

MONTHS: Final[Mapping[Granularity, int]] = {Granularity.MONTH: 1, Granularity.YEAR: 12}
"""Months of a granularity that follows the calendar."""

RowTime: TypeAlias = datetime | str | int
"""A time of rows: a datetime (without a zone it is UTC), a text in ISO 8601, or ms since 1970, also as a text."""


def ms_of(what: str, time: RowTime) -> int:
    """Return a time in ms since 1970. Raises InvalidArgument."""
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    if isinstance(time, str):
        if re.fullmatch(r"-?[0-9]{1,18}", time):
            return int(time)
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            reason = "it must be a time such as 2026-01-31T12:00, or in ms since 1970"
            raise invalid_argument(what, time, reason) from None
    if not isinstance(time, datetime):
        raise invalid_argument(what, time, "it must be a datetime, a text in ISO 8601, or ms since 1970")
    return utc_ms(time)


def ms_of_bounds(start: RowTime | None, end: RowTime | None) -> tuple[int | None, int | None]:
    """Return both bounds in ms since 1970, within the times that a row can have. Raises InvalidArgument."""
    low_ms, high_ms = (
        None if time is None else min(max(ms_of(what, time), TIME_MIN_MS), TIME_END_MS)
        for what, time in (("start", start), ("end", end))
    )
    return low_ms, high_ms


def interval_start(ms: int, granularity: Granularity) -> int:
    """Return where the interval that holds a time begins, in ms."""
    if granularity is Granularity.ALL:
        return TIME_MIN_MS
    if granularity is Granularity.NONE:
        return ms
    if granularity in FIXED_MS:
        return ms // FIXED_MS[granularity] * FIXED_MS[granularity]
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    months = at.month - (at.month - 1) % MONTHS[granularity]
    start = at.replace(month=months, day=1, hour=0, minute=0, second=0, microsecond=0)
    return utc_ms(start)


def interval_end(start_ms: int, granularity: Granularity) -> int:
    """Return where the interval that begins at `start_ms` ends, in ms."""
    if granularity is Granularity.ALL:
        return TIME_END_MS
    if granularity in FIXED_MS:
        return start_ms + FIXED_MS[granularity]
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=start_ms)
    months = start.year * 12 + start.month - 1 + MONTHS[granularity]
    if months // 12 > MAXYEAR:
        return TIME_END_MS
    return utc_ms(start.replace(year=months // 12, month=months % 12 + 1))


def intervals_of(file: TableFile, granularity: Granularity) -> tuple[int, int]:
    """Return beginning and end of the intervals that a file has rows of: one, unless it was written for longer ones."""
    last_ms = interval_start(file.max_ms, granularity)
    return interval_start(file.min_ms, granularity), interval_end(last_ms, granularity)


def lies_within(file: TableFile, granularity: Granularity, start_ms: int | None, end_ms: int | None) -> bool:
    """Return whether the intervals of a file lie in [start_ms, end_ms). None: unbounded."""
    first_ms, last_ms = intervals_of(file, granularity)
    return (start_ms is None or first_ms >= start_ms) and (end_ms is None or last_ms <= end_ms)
