"""Sizes, durations and rates as a terminal shows them. Elsewhere they stay plain numbers in one unit."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

KIB: Final = 1024
SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")

DURATIONS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
"""Units of durations, in ms, the largest first."""


def size_text(size_bytes: float) -> str:
    """Return a size such as "512 B" or "1.2 MiB"."""
    if abs(size_bytes) < KIB:
        return f"{size_bytes:.0f} B"
    power = 0
    while abs(size_bytes) >= KIB - 0.05 and power < len(SIZES):  # 1023.96 KiB would be printed as 1024.0
        size_bytes /= KIB
        power += 1
    return f"{size_bytes:,.1f} {SIZES[power - 1]}"


def duration_text(duration_ms: float) -> str:
    """Return a duration such as "15 ms", "1.2 s", "3 min 4 s" or "2 d 5 h": at most two units."""
    if duration_ms < 0:
        return f"-{duration_text(-duration_ms)}"
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 59_950:
        return f"{duration_ms / 1000:.1f} s"
    rest = round(duration_ms / 1000) * 1000
    for (unit_ms, unit), (next_ms, following) in pairwise(DURATIONS):
        if rest >= unit_ms:
            count, rest = divmod(rest, unit_ms)
            return f"{count} {unit} {rest // next_ms} {following}" if rest >= next_ms else f"{count} {unit}"
    return f"{rest // 1000} s"


def rate_text(per_second: float) -> str:
    """Return a rate such as "0.3" or "12,400"."""
    return f"{per_second:.1f}" if per_second < 100 else f"{per_second:,.0f}"
