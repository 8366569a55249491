"""When a schedule ticks, by a cron expression in a time zone, and what becomes of ticks that were missed. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from eventproc.store.model.argument_checks import check_str, invalid_argument

MISSED_MS: Final = 60_000
"""How late a tick may be appended, in ms, and still be in time. Higher: a tick of a stopped system is appended at its
return; lower: one that waits for a takeover is missed."""

TICKS_A_STEP: Final = 100
"""Missed ticks that one transaction appends, of all schedules, but one of each at least. Higher: other writes wait
longer."""


class MissedTicks(enum.StrEnum):
    """What becomes of ticks that no process could append, as while all were stopped."""

    SKIP = "skip"
    """They are left out."""
    LATEST = "latest"
    """The last one of them happens."""
    ALL = "all"
    """Each of them happens, in order."""


def check_timetable(cron: str, tz: str, now_ms: int) -> None:
    """Raise InvalidArgument for what is no expression or zone, and for an expression without a tick from now on."""
    check_str("cron", cron)
    zone_of(tz)
    if next_tick_ms(cron, tz, now_ms) is None:
        raise invalid_argument("cron", cron, "no time of the next 50 years fits it")


def zone_of(tz: str) -> tzinfo:
    """Return the time zone. Raises InvalidArgument."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few programs need it

    try:
        return ZoneInfo(check_str("tz", tz))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        reason = "there is no such time zone; give a name such as Europe/Paris, of the system or the package tzdata"
        raise invalid_argument("tz", tz, reason) from None


def ticks_after(cron: str, tz: str, after_ms: int) -> Iterator[int]:
    """Yield the ticks behind a time, in ms since 1970. Ends where there is none for 50 years."""
    # A wall clock that was set back shows times again that have ticked.
    return (tick for tick in _ticks(cron, _local(after_ms, tz)) if tick > after_ms)


def next_tick_ms(cron: str, tz: str, after_ms: int) -> int | None:
    """Return the first tick behind a time; None if there is none in 50 years."""
    return next(ticks_after(cron, tz, after_ms), None)


def last_tick_ms(cron: str, tz: str, until_ms: int) -> int | None:
    """Return the last tick at or before a time; None if there is none in 50 years."""
    start = _local(until_ms - until_ms % 1000 + 1000, tz)  # it searches among the seconds before that
    repeated = (start.replace(fold=0).utcoffset() or timedelta()) - (start.utcoffset() or timedelta())
    return next((tick for tick in _ticks(cron, start + repeated, back=True) if tick <= until_ms), None)


def ticks_now(
    cron: str, tz: str, missed: MissedTicks, *, due_ms: int, now_ms: int, limit: int = TICKS_A_STEP
) -> tuple[list[int], int | None]:
    """Return the ticks that happen now, and the next one, which may be due, too.

    due_ms: the first tick that did not happen yet; it has come. limit: how many may happen now, at least one.
    """
    if now_ms - due_ms <= MISSED_MS:
        return [due_ms], next_tick_ms(cron, tz, due_ms)
    if missed is MissedTicks.ALL:
        found = [due_ms]
        for tick in ticks_after(cron, tz, due_ms):
            if tick > now_ms or len(found) == limit:
                return found, tick
            found.append(tick)
        return found, None
    if missed is MissedTicks.SKIP:  # a later one may still be in time
        return [], next_tick_ms(cron, tz, now_ms - MISSED_MS - 1)
    last_ms = last_tick_ms(cron, tz, now_ms)
    return [] if last_ms is None else [max(last_ms, due_ms)], next_tick_ms(cron, tz, now_ms)


def _local(ms: int, tz: str) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).astimezone(zone_of(tz))


def _ticks(cron: str, start: datetime, *, back: bool = False) -> Iterator[int]:
    """Yield the ticks behind a time, or backwards those before it. Raises InvalidArgument."""
    from cronsim import CronSim, CronSimError  # few programs need it

    try:
        ticks = CronSim(cron, start, reverse=back)
    except (CronSimError, ValueError) as why:  # the latter for numbers of thousands of digits
        reason = f"it is no cron expression, such as '0 18 * * mon-fri' ({why})"
        raise invalid_argument("cron", cron, reason) from None
    for tick in ticks:
        yield int(tick.timestamp() * 1000)
