"""Where a query stands, as Spark reports it."""

from __future__ import annotations

import pytest

from eventproc.spark.attached import shortened
from eventproc.spark.queries import positions_of


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        ('{"s/t": "7:0.0=120"}', {"s/t": "7:0.0=120"}),
        ('{"s/t": 7}', {}),  # another source's
        ('{"topic": {"0": 12}}', {}),
        ("12", {}),
        ("no json", {}),
        (None, {}),
    ],
)
def test_positions_of_other_sources_are_ignored(offset: str | None, found: dict[str, str]) -> None:
    assert positions_of(offset) == found


def test_logged_error_is_its_first_line() -> None:
    assert shortened("\n  why it failed  \n\tat java\n") == "why it failed"
