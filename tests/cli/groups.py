"""The group of the tests of groups at the shell: shop/billing, which reads the three events of shop/orders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

GROUP = "shop/billing"
EVENTS = 3


def numbers(rows: Sequence[Mapping[str, str]]) -> list[int]:
    """Return what tells the events of printed rows apart."""
    return [json.loads(row["payload"])["n"] for row in rows]


def rows_of(*values: int) -> bytes:
    """Return JSON lines for events of shop/orders, all of one key."""
    return b"".join(b'{"k":"customer-42","n":%d}\n' % value for value in values)
