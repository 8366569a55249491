"""Where a batch of an idempotent producer belongs: the next one, a repeated one, or one that must not be stored.

Pure. A producer of Kafka's protocol numbers its records of a partition from 0 on, per epoch; the numbers begin again
after 2**31 - 1. The store keeps a growing number for each producer and partition, its *position*: the epoch in the
upper bits, and below it the number of its next record. It is compared and set in the transaction that appends a batch,
so that a batch that is delayed on an old connection is never stored behind its repetition. Beside it lie where a
producer began whose earlier records are unknown, and the number of the event after its last batch.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

SEQUENCES: Final = 2**31
"""Numbers of records, after which they begin again."""

EPOCH_MAX: Final = 2**15 - 1
"""Largest epoch: a signed number of 16 bits in the protocol."""

_EPOCH_SHIFT: Final = 47
"""Bits of a position below the epoch: 140 trillion records for each. With those of the epoch it is below 2**63."""


class Misfit(Enum):
    """Why a batch is not the next one of its producer."""

    REPEATED = auto()
    """It is stored already."""
    OLD_EPOCH = auto()
    """The producer has written in a later epoch."""
    UNKNOWN = auto()
    """Nothing is known of its producer: its records were forgotten, or given up before they came."""
    GAP = auto()
    """Records before it are missing."""


def position_at(epoch: int, number: int) -> int:
    """Return the position of a producer of which a record with this number is the first one that is stored."""
    return (epoch << _EPOCH_SHIFT) + number


def next_position(last: int, epoch: int, first: int, count: int) -> int | Misfit:
    """Return the position after a batch, or why it is not the next one.

    last: position of the producer in the partition, 0 for one that is not known. first: number of the first of its
    `count` records.
    """
    known_epoch, stored = divmod(last, 1 << _EPOCH_SHIFT)
    if epoch < known_epoch:
        return Misfit.OLD_EPOCH
    if epoch > known_epoch:
        stored = 0
    behind = (stored - first) % SEQUENCES
    if behind == 0:
        return position_at(epoch, stored + count)
    # Numbers come back, so that what is behind by more than half of them is ahead.
    if count <= behind <= min(stored, SEQUENCES // 2):
        return Misfit.REPEATED
    return Misfit.GAP if last else Misfit.UNKNOWN
