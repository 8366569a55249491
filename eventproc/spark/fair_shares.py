"""How partitions share what is read of them in one turn: a slice of an ingestion task, or a batch of a query.

A share in proportion to what is unread is less than one event for a small partition, for as long as a large one grows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def fair_shares(unread: Mapping[K, int], limit: int) -> dict[K, int]:
    """Divide `limit` units between partitions: equal shares, of which the small ones leave the rest to the others.

    So a partition with `u` unread units is read within `u * partitions / limit` turns, however much the others have.
    The smallest comes first. unread: units, at least 1. Each partition gets at least one unit: all shares exceed
    `limit` if there are more partitions than units.
    """
    shares: dict[K, int] = {}
    for key in sorted(unread, key=lambda each: unread[each]):
        equal = limit // (len(unread) - len(shares))
        shares[key] = min(unread[key], max(equal, 1))
        limit -= shares[key]
    return shares
