"""What the workers of the system tests write and print, and the check of what was read.

The name of a writer determines its rows: their keys, and how many rows each send has. So a test that knows how many
rows were acknowledged knows which rows must be found, and it recognises half of a send by the number of rows.
A worker prints one line for each step, and one for each log record.
"""

from __future__ import annotations

import itertools
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping

import eventproc
from tests.support.reading import events_of

KEYS = 12
BATCH_MAX = 8


def key_of(writer: str, number: int) -> str:
    """Return the key of a row; no two writers share one, because there is no order between writers."""
    return f"{writer}/{zlib.crc32(f'{writer} {number}'.encode()) % KEYS}"


def payload_of(writer: str, number: int) -> bytes:
    return f"{writer} {number}".encode()


def batches(writer: str) -> Iterator[range]:
    """Yield the numbers of the rows of each send, without end."""
    first = 0
    for batch in itertools.count():
        count = 1 + zlib.crc32(f"{writer} batch {batch}".encode()) % BATCH_MAX
        yield range(first, first + count)
        first += count


def check_rows(
    read: Iterable[tuple[str | None, bytes]], acked: Mapping[str, int], *, by_batch: bool = True
) -> dict[str, int]:
    """Assert that what was read, (key, payload) in its order, is what its writers wrote; return {writer: rows}.

    acked: {writer: how many of its rows were acknowledged}. Of each writer the first rows are there, once, at least
    those; the rows of a key come in the order in which they were written. by_batch: they were sent as `batches`, and
    none is there by half.
    """
    by_writer: dict[str, list[int]] = {writer: [] for writer in acked}
    last: dict[str, int] = {}
    for key, payload in read:
        writer, _, digits = payload.decode().partition(" ")
        number = int(digits)
        assert key is not None
        assert key == key_of(writer, number), f"row {number} of {writer} came back with the key {key!r}"
        assert number > last.get(key, -1), f"key {key}: row {number} came after row {last[key]}"
        last[key] = number
        by_writer.setdefault(writer, []).append(number)
    for writer, numbers in by_writer.items():
        expected = range(max(len(numbers), acked.get(writer, 0)))
        lost, doubled = sorted(set(expected) - set(numbers)), len(numbers) - len(set(numbers))
        assert not lost, f"{writer}: {len(lost)} rows lost of {len(expected)}, the first is {lost[0]}"
        assert not doubled, f"{writer}: {doubled} rows doubled"
        border = (
            len(numbers)
            if not by_batch
            else next(rows.start for rows in batches(writer) if rows.stop > len(numbers))
        )
        assert len(numbers) == border, f"{writer}: half a send, {len(numbers)} rows"
    return {writer: len(numbers) for writer, numbers in by_writer.items()}


async def read_all(ep: eventproc.Eventproc, name: str) -> list[tuple[str | None, bytes]]:
    """Return (key, payload) of everything that is in a stream now, in the order of a reader of the whole stream."""
    return [(event.key, event.payload) for event in await events_of(await ep.stream(name))]


def say(line: str) -> None:
    os.write(1, line.replace("\n", " / ").encode() + b"\n")


class SayHandler(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        say(f"log {record.name} {record.getMessage()}")
