"""How much a hunt has compared: tests note it, and the end of the run prints the sum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

COUNTED: Final = "answers compared with a naive twin"
"""Property of a test: how many answers it has compared."""


def counted_line(reports: Iterable[pytest.TestReport]) -> str | None:
    """Return the line to print after these tests; None if none of them has compared anything."""
    counts = [
        value
        for report in reports
        for name, value in report.user_properties
        if name == COUNTED and isinstance(value, int)
    ]
    return f"{sum(counts):,} {COUNTED}, in {len(counts):,} lives" if counts else None
