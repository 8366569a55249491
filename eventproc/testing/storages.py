"""The contract of a storage, as a check that an own class must pass."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from eventproc.store.segments.event_storage import EventStorage

STEPS: Final = 2_000
"""Calls of one check: enough that an array is cut off, and a list emptied, several times. Each takes a microsecond."""


def verify_storage(make: Callable[[], EventStorage], *, seed: int = 0) -> None:
    """Assert that a storage keeps what it must: each position returns its own bytes until it is freed.

    Appends, reads and frees in random order, in two storages beside each other, and compares with a dictionary.

    Args:
        make: returns a new, empty storage; what `register_storage` takes.
        seed: chooses the calls. Default: 0.

    Raises:
        AssertionError: what was kept is lost, changed or confused, or a position is not valid.
    """
    random = Random(seed)
    pairs: list[tuple[EventStorage, dict[int, bytes]]] = [(make(), {}), (make(), {})]
    for step in range(STEPS):
        storage, kept = random.choice(pairs)
        # Filled first, emptied at the end, and between these mixed.
        if not kept or random.random() < 1 - step / STEPS:
            data = random.randbytes(random.choice((0, 1, 100)))
            position = storage.append(data)
            assert type(position) is int, f"append returned {position!r}, not an int"
            assert 0 <= position < 2**63, f"append returned {position}, not a number from 0 to 2**63 - 1"
            assert position not in kept, f"append returned {position}, where other data is kept"
            kept[position] = data
        else:
            freed = min(kept) if random.random() < 0.7 else random.choice(list(kept))
            storage.free(freed)
            del kept[freed]
        for asked in random.sample(list(kept), min(2, len(kept))):
            assert storage.read(asked) == kept[asked], f"read({asked}) differs from what was appended"
    for storage, kept in pairs:
        for position, data in kept.items():
            assert storage.read(position) == data, f"read({position}) differs from what was appended"
